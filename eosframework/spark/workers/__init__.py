"""Live workers on a Spark cluster: `eosframework run-worker APP --on URL`.

Owns the placement of workers on executors, and the connection between the driver and them. The
workers are those that run without Spark: one process each, below a task of Spark.

    SW1. the driver starts one Spark job for each slot; a slot is the instance name of a worker
    SW2. the job's only task connects to the driver, and proves that it has the run's key
    SW3. it runs the worker in a child process, and restarts it after a crash
    SW4. it sends the worker's counts, and receives the request to stop
    SW5. the worker ends: its exit code and message are the result of the job

    what ends                   who sees it                        then
    a worker                    its task                           SW3 again, on this executor
    the task's Python           the kernel kills the worker;       SW1 again
                                Spark fails the job
    an executor, a node         the task, if it is left; Spark     the worker is killed; SW1 again,
                                fails the job                      on an executor that Spark starts
    the driver                  the tasks: the connection closes   the workers stop in order

Two tasks may run a slot for a moment, for example when an executor is lost to Spark and still runs.
The worker that joins second fences the first (`group.instance.id`, then the transactional ids).
"""
