/* Watermarks in transactions (ADR 20): an upstream task and a downstream task, each taken over at any step, and a
 * second upstream task that always succeeds. What is left out, and how to run and read it, in README.md.
 *
 * Steps carry the numbers of the code's docstrings: T1-T2 (engine/worker/takeover.py), W1-W3
 * (engine/task/producer_group.py).
 *
 * The upstream task has two inputs with the event times 1 and 2, in either order. Each gives an output with the
 * stream time of the task as its time of writing: 1, 2 or 2, 2. The second upstream task sends one watermark, 3.
 * A transaction may lack a watermark, as W2 allows it, but the last one: a task that owes one begins another.
 *
 * -D switches that take one rule out:
 *   WITHOUT_TRANSACTION    W1: the watermark is not in the transaction of the outputs
 *   WITHOUT_ORDER          W1: the watermark precedes the outputs
 *   WITHOUT_TAKEOVER       W2: the first transaction after a takeover announces nothing that was known before
 *   WITHOUT_DROP           a watermark of an aborted transaction counts as announced
 *   WITHOUT_FENCE          T1: a new worker does not fence the former one
 *   WITHOUT_WRITERS_TIME   the offsets of the upstream task do not have its stream time
 *   WITHOUT_READERS_TIME   the offsets of the downstream task do not have its stream time
 *   WITHOUT_COMMITTED_READS the downstream task reads open and aborted transactions
 *   WITHOUT_VECTOR         T2: a new downstream worker does not read the vector of watermarks back
 *   WITH_VECTOR_FIRST      the vector is committed before the offsets
 *   WITH_VECTOR_LAST       the vector is committed after the offsets
 */

#ifndef FAULTS
#define FAULTS 1     /* transactions of the upstream task that abort, or commit without an answer */
#endif
#ifndef TAKEOVERS
#define TAKEOVERS 1  /* of the upstream task, at any step: the former worker is killed, or fenced and refused */
#endif
#ifndef RESTARTS
#define RESTARTS 1   /* of the downstream task, at any step */
#endif
#define INPUTS 2
#define TIME(input) ((input) == 0 -> first : 3 - first)
#define LAST_TIME 2
#define OTHER_TIME 3
#define LENGTH 12
#define GREATER(a, b) (((a) > (b)) -> (a) : (b))
#define LESSER(a, b) (((a) < (b)) -> (a) : (b))

mtype = { time_passed_record, time_held };
mtype = { opened, committed, aborted };

/* The repartition partition from the offset on that the downstream task has committed, as purging leaves it: of
 * each entry its transaction, whether it is a watermark, of which task, its time, and the writer while it is open. */
mtype state[LENGTH];
bool is_watermark[LENGTH];
byte task[LENGTH], time[LENGTH], by[LENGTH];
byte end;

/* The upstream task: committed offset with stream time. */
byte offset, writers_time;
/* The downstream task: the committed stream time and vector (0: no watermark), and in its memory the number of
 * entries that it has read since its last commit, stream time and the vector. */
byte readers_time, vector[2];
byte seen, now, known[2];
byte faults = FAULTS, takeovers = TAKEOVERS, restarts = RESTARTS;
byte first;                          /* event time of the first input */
byte i;

#ifdef ONLY
#define LOOKED_FOR(anomaly) (anomaly == ONLY)
#else
#define LOOKED_FOR(anomaly) true
#endif

inline must(condition, name)
{
    if
    :: !(condition) && LOOKED_FOR(name) -> printf("ANOMALY: %e\n", name); assert(false)
    :: else
    fi
}

/* --- the broker --- */

inline append(the_worker, the_task, the_state, watermark, the_time)
{
    d_step {
        assert(end < LENGTH);
        state[end] = the_state; is_watermark[end] = watermark; task[end] = the_task; time[end] = the_time;
        by[end] = the_worker;
        end++
    }
}

inline finish(the_worker, result)
{
    d_step {
        i = 0;
        do
        :: i < end ->
            if
            :: state[i] == opened && by[i] == the_worker -> state[i] = result; by[i] = 0
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    }
}

/* DeleteRecords: removes the entries that the downstream task has read and committed. */
inline purge()
{
    d_step {
        i = 0;
        do
        :: i < end ->
            if
            :: i + seen < end ->
                state[i] = state[i + seen]; is_watermark[i] = is_watermark[i + seen];
                task[i] = task[i + seen]; time[i] = time[i + seen]; by[i] = by[i + seen]
            :: else -> state[i] = 0; is_watermark[i] = false; task[i] = 0; time[i] = 0; by[i] = 0
            fi;
            i++
        :: else -> break
        od;
        end = end - seen; seen = 0; i = 0
    }
}

/* --- the upstream task --- */

/* T1: InitProducerId aborts what is open. Without a fence the former worker lives on as another process. */
inline take_over()
{
    takeovers--;
    finish(number, aborted);
    told = 0;
    printf("worker %d: T1, takes the upstream task over\n", number)
}

proctype Upstream(byte number)
{
    byte pos, upto, next, stream_time, told, announced;
    bool announces;

takeover:
    atomic {
        pos = offset; upto = 0; next = 0; announced = 0; announces = false;
#ifdef WITHOUT_WRITERS_TIME
        stream_time = 0;
#else
        stream_time = writers_time;
#endif
#ifdef WITHOUT_TAKEOVER
        told = stream_time;
#endif
        printf("worker %d: T2, reads offset %d with stream time %d\n", number, pos, stream_time)
    }
idle:
    /* A transaction: of the next inputs, with a watermark or without; or of a watermark alone. */
    if
    :: atomic { takeovers > 0 -> take_over(); goto takeover }
    :: atomic { pos < INPUTS || told != stream_time ->
        upto = pos; next = pos; announced = stream_time;
        do
        :: upto < INPUTS -> announced = GREATER(announced, TIME(upto)); upto++
        :: upto > pos || pos == INPUTS -> break
        od;
        if
        :: announced != told -> announces = true
        :: upto > pos -> announces = false
        fi
       }
    fi;
#ifdef WITHOUT_ORDER
    atomic {
        if
        :: announces -> append(number, 0, opened, true, announced);
            printf("worker %d: W1, sends watermark %d\n", number, announced)
        :: else
        fi
    }
#endif
    do
    :: atomic { takeovers > 0 -> take_over(); goto takeover }
    :: atomic { next < upto ->
            stream_time = GREATER(stream_time, TIME(next));
            append(number, 0, opened, false, stream_time);
            printf("worker %d: sends the output of input %d, written at %d\n", number, next, stream_time);
            next++
       }
    :: next == upto -> break
    od;
#ifndef WITHOUT_ORDER
    atomic {
        if
        :: announces ->
#ifdef WITHOUT_TRANSACTION
            append(number, 0, committed, true, announced);
#else
            append(number, 0, opened, true, announced);
#endif
            printf("worker %d: W1, sends watermark %d\n", number, announced)
        :: else
        fi
    }
#endif
    if
    :: atomic { takeovers > 0 -> take_over(); goto takeover }
    :: atomic {
            finish(number, committed);
            offset = upto; pos = upto;
            writers_time = stream_time;
            if
            :: announces -> told = announced
            :: else
            fi;
            printf("worker %d: commits offset %d with stream time %d\n", number, offset, stream_time);
            goto idle
       }
    :: atomic { faults > 0 ->
            faults--;
            finish(number, committed);
            offset = upto;
            writers_time = stream_time;
            printf("worker %d: commits offset %d, the answer is lost; R1\n", number, offset);
            pos = offset; stream_time = writers_time;
            goto idle
       }
    :: atomic { faults > 0 ->
            faults--;
            finish(number, aborted);
#ifdef WITHOUT_DROP
            if
            :: announces -> told = announced
            :: else
            fi;
#endif
            pos = offset; stream_time = writers_time;
            printf("worker %d: aborts, and resumes at offset %d\n", number, pos);
            goto idle
       }
    fi
}

/* The second upstream task. */
proctype Other()
{
    atomic {
        append(2, 1, committed, true, OTHER_TIME);
        printf("worker 3: commits watermark %d of the second upstream task\n", OTHER_TIME)
    }
}

/* --- the downstream task --- */

#ifdef WITHOUT_COMMITTED_READS
#define READABLE(at) (at < end)
#define VISIBLE(at) true
#else
#define READABLE(at) (at < end && state[at] != opened)
#define VISIBLE(at) (state[at] == committed)
#endif

proctype Downstream()
{
takeover:
    atomic {
        seen = 0; now = 0; known[0] = 0; known[1] = 0;
#ifndef WITHOUT_READERS_TIME
        now = readers_time;
#endif
#ifndef WITHOUT_VECTOR
        known[0] = vector[0]; known[1] = vector[1];
#endif
        printf("worker 2: T2, reads its offset, stream time %d and vector %d %d\n", now, known[0], known[1])
    }
    do
    :: atomic { READABLE(seen) ->
            if
            :: VISIBLE(seen) && is_watermark[seen] ->
                if
                :: time[seen] > known[task[seen]] ->
                    known[task[seen]] = time[seen];
                    now = GREATER(now, LESSER(known[0], known[1]))
                :: else
                fi;
                printf("worker 2: takes watermark %d of task %d, stream time is %d\n", time[seen], task[seen], now)
            :: VISIBLE(seen) && !is_watermark[seen] ->
                printf("worker 2: takes a record written at %d, stream time is %d\n", time[seen], now);
                must(now <= time[seen], time_passed_record)
            :: else
            fi;
            seen++
       }
#if defined(WITH_VECTOR_FIRST)
    :: atomic { seen > 0 ->
            vector[0] = known[0]; vector[1] = known[1];
            printf("worker 2: commits vector %d %d\n", known[0], known[1])
       }
       if
       :: atomic { readers_time = now; printf("worker 2: commits its offset\n"); purge() }
       :: atomic { restarts > 0 -> restarts--; printf("worker 2: is killed\n"); goto takeover }
       fi
#elif defined(WITH_VECTOR_LAST)
    :: atomic { seen > 0 ->
            readers_time = now; purge();
            printf("worker 2: commits its offset and stream time %d\n", now)
       }
       if
       :: atomic {
            vector[0] = known[0]; vector[1] = known[1];
            printf("worker 2: commits vector %d %d\n", known[0], known[1])
          }
       :: atomic { restarts > 0 -> restarts--; printf("worker 2: is killed\n"); goto takeover }
       fi
#else
    :: atomic { seen > 0 ->
            readers_time = now; vector[0] = known[0]; vector[1] = known[1]; purge();
            printf("worker 2: commits its offset, stream time %d and vector %d %d\n", now, known[0], known[1])
       }
#endif
    :: atomic { restarts > 0 -> restarts--; printf("worker 2: is killed\n"); goto takeover }
    od
}

/* Nothing can happen any more: stream time is the least time of both upstream tasks. */
init
{
    atomic {
        if
        :: first = 1
        :: first = 2
        fi;
#ifdef WITHOUT_FENCE
        takeovers = 0;
        run Upstream(1);
#endif
        printf("broker: the first input has event time %d\n", first);
        run Upstream(0); run Other(); run Downstream()
    }
    timeout;
    must(now == LAST_TIME, time_held)
}
