/* The cutover of a backfill to live workers: a task of the job with two attempts, two runs of the cutover,
 * two live workers, one broker. What is left out, and how to run and read it, in README.md.
 *
 * Steps carry the numbers of the code's docstrings: A2-A8 (backfill/executor/functions.py), C1-C5
 * (spark/backfill/cutover.py), T1-T2 (engine/worker/takeover.py).
 *
 * Each of the two partitions has one record of history (input 0), partition 0 also one after it (input 1).
 * The task of partition 1 is complete; that of partition 0 is not, unless ATTEMPTS is 0.
 *
 * -D switches that take one rule out:
 *   WITHOUT_TASK_ID        each attempt has an id of its own
 *   WITHOUT_PROGRESS_READ  A3: an attempt does not read the progress after its init
 *   WITHOUT_STABLE_READS   C1 and C4 read what a transaction may still change
 *   WITHOUT_JOIN           no C2: the cutover is no member, its offsets are not checked
 *   WITHOUT_MEMBERSHIP     C5 sends no membership
 *   WITHOUT_FENCE          C3 does not init the ids of live workers
 *   WITHOUT_CUTOVER_ID     C3: each run has an id of its own
 *   WITHOUT_SECOND_CHECK   no C4
 *   WITHOUT_EQUAL_REFUSED  C1 and C4 accept a position that equals the end of the job's range
 *   WITHOUT_ONE_COMMIT     C5: a transaction for each partition
 */

#ifndef LATE
#define LATE 1       /* an EndTxn of a cutover that arrives after its sender gave up or died */
#endif
#ifndef CRASHES
#define CRASHES 1    /* attempts or cutovers that are killed at any step */
#endif
#ifndef LAPSES
#define LAPSES 2     /* members whose session expires while they are suspended */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CUTOVERS
#define CUTOVERS 2
#endif
#if ATTEMPTS > 0
#define DONE_BEFORE 2
#else
#define DONE_BEFORE 3
#endif
#define RECORDS(p) (2 - (p))
#ifdef SHORTEST
#define SCRATCH
#else
#define SCRATCH hidden
#endif

mtype = { input_doubled, history_again, input_lost, offset_went_back, torn_transaction, left_open };
mtype = { waiting, A2, A3, A5, A6, joining, T1, T2, poll, s5, C1, C2, C3_own, C3_live, C4, C5_send,
          C5_end, leaving, gone };
mtype = { ok, fenced, refused, stale_member };

/* Transactional ids. */
#define TASK(run) (run)              /* 0 and, if each attempt has its own, 1 */
#define CUTOVER(run) (2 + (run))
#define LIVE(partition) (4 + (partition))
#define IDS 6
#ifdef WITHOUT_TASK_ID
#define TASK_ID(run) (run)
#else
#define TASK_ID(run) 0
#endif
#ifdef WITHOUT_CUTOVER_ID
#define CUTOVER_ID(run) (2 + (run))
#else
#define CUTOVER_ID(run) 2
#endif

/* Members of the group: 1 and 2 are workers, 3 and 4 runs of the cutover. */
#define WORKER(run) (1 + (run))
#define CUTTER(run) (3 + (run))

byte epoch[IDS];
bool open[IDS];
byte written[IDS];                   /* bit set of inputs */
byte offset[2];                      /* 0: none is committed */
byte pending[2 * IDS];               /* by id and partition */
bool entry[IDS];                     /* the open transaction has the entry of the cutover or the task */
bool complete = (ATTEMPTS == 0), cut;                  /* committed entries */
byte history = DONE_BEFORE;                    /* bit set of partitions whose history is visible, by the job */
byte live[2];                        /* bit set of inputs that are visible, by live workers */
bool has_moved;                      /* ghost: a transaction of a cutover is committed */
byte member;

byte late = LATE, crashes = CRASHES, lapses = LAPSES;
byte held, held_epoch;               /* an EndTxn on its way: the id + 1 */
SCRATCH byte i;
SCRATCH mtype answer;

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

inline clear(the_id)
{
    open[the_id] = false; written[the_id] = 0; entry[the_id] = false;
    pending[2 * the_id] = 0; pending[2 * the_id + 1] = 0
}

inline init_producer(the_id)
{
    clear(the_id);
    epoch[the_id]++;
    assert(epoch[the_id] < 20)
}

inline commit_offset(the_id, p)
{
    if
    :: pending[2 * the_id + p] ->
        must(pending[2 * the_id + p] >= offset[p], offset_went_back);
        offset[p] = pending[2 * the_id + p]
    :: else
    fi
}

inline commit(the_id)
{
    if
    :: the_id < 2 ->
        must(!(history & 1), input_doubled);
        history = history | 1;
        complete = true
    :: the_id == 2 || the_id == 3 ->
        must(!(live[0] & 1) && !(live[1] & 1), history_again);
        must(history == 3, input_lost);
#ifndef WITHOUT_ONE_COMMIT
        must(entry[the_id] && pending[2 * the_id] && pending[2 * the_id + 1], torn_transaction);
#endif
        commit_offset(the_id, 0);
        commit_offset(the_id, 1);
        cut = cut || entry[the_id];
        has_moved = true
    :: the_id >= 4 ->
        must(!(live[the_id - 4] & written[the_id]), input_doubled);
        must(!(has_moved && (written[the_id] & 1)), history_again);
        live[the_id - 4] = live[the_id - 4] | written[the_id];
        commit_offset(the_id, (the_id - 4))
    fi;
    clear(the_id)
}

inline end_transaction(the_id, its_epoch)
{
    if
    :: its_epoch != epoch[the_id] -> answer = fenced
    :: its_epoch == epoch[the_id] && open[the_id] -> answer = ok; commit(the_id)
    :: else -> answer = ok
    fi
}

#ifdef WITHOUT_STABLE_READS
#define STABLE true
#define COMPLETE (complete || entry[0] || entry[1])
#else
/* No transaction that the reader waits for is open: one of the control topic, one with offsets. */
#define STABLE (!open[0] && !open[1] && !open[2] && !open[3] && !open[4] && !open[5])
#define COMPLETE complete
#endif

/* Positions that no cutover has made: a cutover's are committed together with its entry. */
#ifdef WITHOUT_EQUAL_REFUSED
#define MOVED (offset[0] > 1 || offset[1] > 1)
#else
#define MOVED (offset[0] > 0 || offset[1] > 0)
#endif

/* --- attempts of the task of partition 0 --- */

proctype Attempt(byte me)
{
    mtype step = A2;
    byte my_epoch;
end:
    do
    :: d_step { step == A2 ->
        init_producer(TASK_ID(me));
        my_epoch = epoch[TASK_ID(me)];
        printf("attempt %d: A2, inits its id, epoch %d\n", me, my_epoch);
        step = A3
       }
    :: d_step { step == A3 && !entry[0] && !entry[1] ->
#ifdef WITHOUT_PROGRESS_READ
        step = A5;
#else
        step = (complete -> gone : A5);
#endif
        printf("attempt %d: A3, reads the progress, complete: %d\n", me, complete)
       }
    :: d_step { step == A5 ->
        if
        :: my_epoch == epoch[TASK_ID(me)] ->
            open[TASK_ID(me)] = true; entry[TASK_ID(me)] = true; answer = ok; step = A6
        :: else -> answer = fenced; step = gone
        fi;
        printf("attempt %d: A5, sends the records and the progress: %e\n", me, answer)
       }
    :: d_step { step == A6 ->
        end_transaction(TASK_ID(me), my_epoch);
        printf("attempt %d: A6, sends EndTxn: %e\n", me, answer);
        step = gone
       }
    :: d_step { step != gone && step != A2 && crashes > 0 ->
        crashes--;
        printf("attempt %d: %e, killed\n", me, step);
        if
        :: my_epoch == epoch[TASK_ID(me)] -> clear(TASK_ID(me))
        :: else
        fi;
        step = gone
       }
    od
}

/* --- live workers; one that is not scheduled is a suspended one --- */

proctype Worker(byte me)
{
    mtype step = joining;
    byte my_epoch[2], position[2], current;
end:
    do
    :: d_step { step == joining && member == 0 ->
        member = WORKER(me);
        printf("worker %d: joins\n", me);
        step = T1
       }
    :: d_step { step == T1 ->
        init_producer(4); my_epoch[0] = epoch[4];
        init_producer(5); my_epoch[1] = epoch[5];
        printf("worker %d: T1, inits the ids of the partitions\n", me);
        step = T2
       }
    :: d_step { step == T2 && !pending[4] && !pending[5] && !pending[6] && !pending[7] ->
        position[0] = offset[0]; position[1] = offset[1];
        printf("worker %d: T2, reads the committed offsets %d and %d\n",
               me, position[0], position[1]);
        step = poll
       }
    :: atomic { step == poll && member == WORKER(me) && (position[0] < RECORDS(0) || position[1] < RECORDS(1)) ->
        if
        :: position[0] < RECORDS(0) -> current = 0
        :: position[1] < RECORDS(1) -> current = 1
        fi;
        d_step {
            if
            :: my_epoch[current] != epoch[4 + current] -> answer = fenced; step = leaving
            :: else ->
                open[4 + current] = true;
                written[4 + current] = 1 << position[current];
                pending[2 * (4 + current) + current] = position[current] + 1;
                answer = ok;
                step = s5
            fi;
            printf("worker %d: 3 and 4, input %d of partition %d: %e\n",
                   me, position[current], current, answer)
        }
       }
    :: d_step { step == s5 ->
        end_transaction((4 + current), my_epoch[current]);
        printf("worker %d: 5, sends EndTxn for partition %d: %e\n", me, current, answer);
        position[current] = (answer == ok -> position[current] + 1 : position[current]);
        step = (answer == ok -> poll : leaving)
       }
    /* It is stopped, or finds that it is no member any more. */
    :: d_step { step == poll || step == leaving ->
        member = (member == WORKER(me) -> 0 : member);
        printf("worker %d: ends\n", me);
        my_epoch[0] = 0; my_epoch[1] = 0; position[0] = 0; position[1] = 0; current = 0;
        step = gone
       }
    od
}

/* --- runs of the cutover: of one operator after the other, or of two at once --- */

proctype Cutover(byte me)
{
    mtype step = C1;
    byte my_epoch;
    byte next_partition;             /* WITHOUT_ONE_COMMIT: the partition whose transaction is next */
end:
    do
    :: d_step { step == C1 && COMPLETE && !cut && !MOVED && member != 1 && member != 2 ->
        printf("cutover %d: C1, nothing is against it\n", me);
#ifdef WITHOUT_JOIN
        step = C3_own
#else
        step = C2
#endif
       }
    :: d_step { step == C1 && (cut || MOVED) ->
        printf("cutover %d: C1, refuses, or it is done\n", me);
        step = gone
       }
    :: d_step { step == C2 && member == 0 ->
        member = CUTTER(me);
        printf("cutover %d: C2, is the only member\n", me);
        step = C3_own
       }
    :: d_step { step == C2 && member != 0 ->
        printf("cutover %d: C2, refuses: there is another member\n", me);
        step = gone
       }
    :: d_step { step == C3_own ->
        init_producer(CUTOVER_ID(me));
        my_epoch = epoch[CUTOVER_ID(me)];
        printf("cutover %d: C3, inits its id, epoch %d\n", me, my_epoch);
#ifdef WITHOUT_FENCE
        step = C4
#else
        step = C3_live
#endif
       }
    :: d_step { step == C3_live ->
        init_producer(4);
        init_producer(5);
        printf("cutover %d: C3, inits the ids of live workers\n", me);
        step = C4
       }
#ifdef WITHOUT_SECOND_CHECK
    :: d_step { step == C4 -> step = C5_send }
#else
    :: d_step { step == C4 && STABLE ->
        printf("cutover %d: C4, reads: cut over %d, offsets %d and %d\n",
               me, cut, offset[0], offset[1]);
        step = (cut || MOVED -> leaving : C5_send)
       }
#endif
    :: d_step { step == C5_send ->
        if
        :: my_epoch != epoch[CUTOVER_ID(me)] -> answer = fenced; step = leaving
#if !defined(WITHOUT_JOIN) && !defined(WITHOUT_MEMBERSHIP)
        :: my_epoch == epoch[CUTOVER_ID(me)] && member != CUTTER(me) ->
            clear(CUTOVER_ID(me)); answer = stale_member; step = leaving
#endif
        :: else ->
            answer = ok;
            open[CUTOVER_ID(me)] = true;
#ifdef WITHOUT_ONE_COMMIT
            pending[2 * CUTOVER_ID(me) + next_partition] = 1;
            entry[CUTOVER_ID(me)] = next_partition == 1;
#else
            pending[2 * CUTOVER_ID(me)] = 1;
            pending[2 * CUTOVER_ID(me) + 1] = 1;
            entry[CUTOVER_ID(me)] = true;
#endif
            step = C5_end
        fi;
        printf("cutover %d: C5, sends the entry and the offsets: %e\n", me, answer)
       }
    :: d_step { step == C5_end ->
        end_transaction(CUTOVER_ID(me), my_epoch);
        printf("cutover %d: C5, sends EndTxn: %e\n", me, answer);
#ifdef WITHOUT_ONE_COMMIT
        step = (answer == ok && next_partition == 0 -> C5_send : leaving);
        next_partition = 1 - next_partition
#else
        step = leaving
#endif
       }
    :: atomic { step == C5_end && late > 0 ->
        d_step { late--; held = CUTOVER_ID(me) + 1; held_epoch = my_epoch };
        if
        :: printf("cutover %d: C5, EndTxn is late, gives up\n", me); step = C3_own
        :: printf("cutover %d: C5, EndTxn is late, killed\n", me);
            d_step { my_epoch = 0; next_partition = 0; step = gone }
        fi
       }
    :: d_step { step == leaving ->
        member = (member == CUTTER(me) -> 0 : member);
        my_epoch = 0; next_partition = 0;
        step = gone
       }
    :: d_step { step != gone && step != C1 && step != leaving && crashes > 0 ->
        crashes--;
        printf("cutover %d: %e, killed\n", me, step);
        my_epoch = 0; next_partition = 0;
        step = gone
       }
    od
}

init
{
    atomic {
#if ATTEMPTS == 2
        run Attempt(0); run Attempt(1);
#endif
#if WORKERS == 2
        run Worker(1);
#endif
#if CUTOVERS == 2
        run Cutover(1);
#endif
        run Worker(0); run Cutover(0)
    }
}

active proctype World()
{
end:
    do
    :: d_step { member != 0 && lapses > 0 ->
        lapses--;
        printf("group: the session of member %d expires\n", member);
        member = 0
       }
    /* The process ended without leaving. */
    :: d_step { held != 0 ->
        end_transaction((held - 1), held_epoch);
        printf("network: the late EndTxn of epoch %d arrives: %e\n", held_epoch, answer);
        held = 0; held_epoch = 0
       }
    /* Any transaction may outlast its timeout; this also ends those of dead processes. */
    :: atomic { open[2] || open[3] || open[4] || open[5] ->
        if
        :: open[2] -> i = 2
        :: open[3] -> i = 3
        :: open[4] -> i = 4
        :: open[5] -> i = 5
        fi;
        d_step {
            init_producer(i);
            printf("broker: the transaction of id %d has outlasted its timeout\n", i);
            i = 0
        }
       }
    od
}

/* Quiet for good: a cutover that took place is complete, and the live workers resumed after it. */
active proctype Judge()
{
    timeout;
    d_step {
        must(!open[0] && !open[1] && !open[2] && !open[3] && !open[4] && !open[5], left_open);
        must(!cut || (offset[0] && offset[1] && history == 3), input_lost)
    }
}
