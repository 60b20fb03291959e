/* An effect outside Kafka: its journal, a service, and two workers. What is left out, and how to run and read it,
 * in README.md; the protocol in docs/adr/0036-effects-are-journalled.md.
 *
 *   J1  take over: init the journal's ids, the other worker's and the own one
 *   J2  read the journal
 *   J3  commit an intent with its attempt number, offsets included; that is checked by the group
 *   J4  call the service; in a doubt, look the effect up first
 *   J5  commit the result, likewise
 *   J6  commit the record, in the transaction of its task
 *
 * The service (-DSERVICE=): KEYS honours the key: a repeated call has no effect. ATTEMPTS rejects an attempt that is
 * older than the newest one it saw, in a look-up too. PLAIN does neither.
 * The policy in a doubt (-DPOLICY=): RETRY, LOOK_UP, DEAD_LETTER.
 *
 * -D switches that take one rule out:
 *   WITHOUT_FENCE            J1 inits the own id only
 *   WITHOUT_FENCE_FIRST      J2 before J1
 *   WITHOUT_INTENT           no J3
 *   WITHOUT_RESULT           no J5
 *   WITHOUT_GROUP_CHECK      the journal's transactions have no offsets
 *   WITHOUT_NEW_ATTEMPT      in a doubt the attempt number stays
 *   WITHOUT_INTENT_IN_DOUBT  in a doubt the new attempt number is not committed first
 *   WITHOUT_ATTEMPT_LOOKED_UP  the look-up does not hand the attempt number over
 *   WITHOUT_POLICY           an intent without a result is overlooked
 *   WITHOUT_REPLAY           a committed result is overlooked
 * -DONLY=name looks for one anomaly and overlooks the others; -DSHORTEST is for a search by breadth.
 */

#define KEYS 0
#define ATTEMPTS 1
#define PLAIN 2
#define RETRY 0
#define LOOK_UP 1
#define DEAD_LETTER 2

#ifndef SERVICE
#define SERVICE KEYS
#endif
#ifndef POLICY
#define POLICY RETRY
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef DOUBTS
#define DOUBTS 1       /* a commit of the journal, or a call, without an answer */
#endif
#ifndef ABORTS
#define ABORTS 1       /* of the record's transaction */
#endif
#define EPOCHS 15
#ifdef SHORTEST
#define SCRATCH
#else
#define SCRATCH hidden
#endif

/* What must not happen. */
mtype = { effect_doubled, effect_lost, needless_doubt, called_again, input_lost, endless_fencing };

mtype = { idle, J1_other, J1_own, J2, READY, J3_send, J3_end, J4_look, J4, J5_send, J5_end, J6, J6_dead, R };

mtype = { none, an_intent, a_result };

byte owner, generation;
byte epoch[2];                   /* of each worker's id of the journal */
mtype pending[2] = none;         /* in the open transaction of the id */
byte pending_attempt[2];

byte intent;                     /* the newest committed attempt; 0: there is none */
bool result;                     /* is committed */

byte effects;
byte newest;                     /* attempt that the service saw */
byte late_call;                  /* attempt of a request that is on its way; 0: there is none */

byte record;                     /* 1: committed with its result; 2: as a dead letter */

byte moves = MOVES, kills = KILLS, doubts = DOUBTS, aborts = ABORTS;
bool disturbed;                  /* something happened after which a doubt may arise */

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

inline init_id(whose)
{
    epoch[whose]++;
    must(epoch[whose] < EPOCHS, endless_fencing);
    pending[whose] = none; pending_attempt[whose] = 0
}

inline end_transaction(whose, its_epoch)
{
    if
    :: its_epoch == epoch[whose] && pending[whose] != none ->
        if
        :: pending[whose] == an_intent -> intent = (pending_attempt[whose] > intent -> pending_attempt[whose] : intent)
        :: else -> result = true
        fi;
        pending[whose] = none; pending_attempt[whose] = 0;
        committed = 1
    :: else -> committed = 0
    fi
}

/* The service gets a call. */
inline serve(its_attempt)
{
#if SERVICE == ATTEMPTS
    if
    :: its_attempt < newest -> answered = 0
    :: else -> newest = its_attempt; effects++; answered = 1
    fi;
#elif SERVICE == KEYS
    effects = 1; answered = 1;
#else
    effects++; answered = 1;
#endif
    must(effects <= 1, effect_doubled)
}

#define LOST (member != generation)
#ifdef WITHOUT_GROUP_CHECK
#define REFUSED false
#else
#define REFUSED LOST
#endif
#ifdef WITHOUT_FENCE
#define FIRST J1_own
#else
#define FIRST J1_other
#endif

inline leave()
{
    member = 0; my_epoch = 0; attempt = 0; wanted = 0; done = false; looks = false; back = idle;
    step = idle
}

inline send(what, next)
{
    if
    :: my_epoch != epoch[me] -> back = step; step = R
    :: my_epoch == epoch[me] && REFUSED -> printf("worker %d: the group refuses it\n", me); leave()
    :: else -> pending[me] = what; pending_attempt[me] = wanted; step = next
    fi
}

/* An intent without a result. */
inline doubt()
{
    must(disturbed, needless_doubt);
#ifdef WITHOUT_NEW_ATTEMPT
    wanted = attempt;
#else
    wanted = attempt + 1;
#endif
#ifdef WITHOUT_POLICY
    wanted = 1;
    step = J3_send
#elif POLICY == DEAD_LETTER
    step = J6_dead
#else
    looks = (POLICY == LOOK_UP);
#ifdef WITHOUT_INTENT_IN_DOUBT
    attempt = wanted;
    step = (looks -> J4_look : J4)
#else
    step = J3_send
#endif
#endif
}

SCRATCH byte committed;
SCRATCH byte answered;

proctype Worker(byte me)
{
    mtype step = idle, back = idle;
    byte member, my_epoch;
    byte attempt, wanted;        /* as far as is known; of the next intent */
    bool done, looks;

end:
    do
    :: d_step { step == idle && owner == me && record == 0 ->
        member = generation;
#ifdef WITHOUT_FENCE_FIRST
        step = J2
#else
        step = FIRST
#endif
       }
    :: d_step { step == J1_other ->
        init_id(1 - me);
        printf("worker %d: J1 inits the other id\n", me);
        step = J1_own
       }
    :: d_step { step == J1_own ->
        init_id(me);
        my_epoch = epoch[me];
        printf("worker %d: J1 inits its own id\n", me);
#ifdef WITHOUT_FENCE_FIRST
        step = READY
#else
        step = J2
#endif
       }
    :: d_step { step == J2 ->
        attempt = intent;
#ifndef WITHOUT_REPLAY
        done = result;
#endif
        printf("worker %d: J2 reads attempt %d, result %d\n", me, attempt, done);
#ifdef WITHOUT_FENCE_FIRST
        step = FIRST
#else
        step = READY
#endif
       }

    :: d_step { step == READY && LOST -> printf("worker %d: has lost it\n", me); leave() }
    :: d_step { step == READY && record == 0 ->
        if
        :: done -> step = J6
        :: !done && attempt == 0 ->
            wanted = 1; looks = false;
#ifdef WITHOUT_INTENT
            attempt = 0;
            step = J4
#else
            step = J3_send
#endif
        :: else -> printf("worker %d: is in doubt\n", me); doubt()
        fi
       }

    :: d_step { step == J3_send -> printf("worker %d: J3, intent %d\n", me, wanted); send(an_intent, J3_end) }
    :: d_step { step == J3_end ->
        end_transaction(me, my_epoch);
        printf("worker %d: J3 ends: %d\n", me, committed);
        if
        :: committed -> attempt = wanted; step = (looks -> J4_look : J4)
        :: else -> back = J3_send; step = R
        fi
       }
    :: atomic { (step == J3_end || step == J5_end) && doubts > 0 ->
        doubts--;
        back = (step == J3_end -> J3_send : J5_send);
        if
        :: end_transaction(me, my_epoch); printf("worker %d: it ends, no answer\n", me)
        :: printf("worker %d: its end is lost\n", me)
        fi;
        step = R
       }
    :: d_step { step == J4_look ->
#if SERVICE == ATTEMPTS && !defined(WITHOUT_ATTEMPT_LOOKED_UP)
        newest = (wanted > newest -> wanted : newest);
#endif
        printf("worker %d: J4 looks it up: %d\n", me, effects);
        step = (effects > 0 -> J5_send : J4)
       }
    :: d_step { step == J4 ->
        must(!(result && !LOST), called_again);
        serve(wanted);
        printf("worker %d: J4 calls, attempt %d: %d\n", me, wanted, answered);
        if
        :: answered ->
#ifdef WITHOUT_RESULT
            done = true;
            step = J6
#else
            step = J5_send
#endif
        :: else -> disturbed = true; step = READY
        fi
       }
    :: atomic { step == J4 && doubts > 0 && late_call == 0 ->
        doubts--; disturbed = true;
        if
        :: serve(wanted); printf("worker %d: J4 calls, no answer\n", me)
        :: late_call = wanted; printf("worker %d: J4 calls, the request is late\n", me)
        :: printf("worker %d: J4, the request is lost\n", me)
        fi;
        step = READY
       }
    :: d_step { step == J5_send -> printf("worker %d: J5, result\n", me); send(a_result, J5_end) }
    :: d_step { step == J5_end ->
        end_transaction(me, my_epoch);
        printf("worker %d: J5 ends: %d\n", me, committed);
        if
        :: committed -> done = true; step = J6
        :: else -> back = J5_send; step = R
        fi
       }

    /* The record's transaction: its own fence and the group's check are those of ownership.pml. */
    :: d_step { (step == J6 || step == J6_dead) && LOST -> leave() }
    :: d_step { step == J6 && !LOST ->
        record = 1;
        must(effects > 0, effect_lost);
        printf("worker %d: J6, committed\n", me);
        leave()
       }
    :: d_step { step == J6_dead && !LOST ->
        record = 2;
        printf("worker %d: J6, a dead letter\n", me);
        leave()
       }
    :: d_step { step == J6 && aborts > 0 ->
        aborts--;
#ifdef WITHOUT_RESULT
        done = false; attempt = wanted;
#endif
        printf("worker %d: J6 is aborted\n", me);
        step = READY
       }

    :: d_step { step == R && LOST -> leave() }
    /* It may not see the loss yet. */
    :: d_step { step == R ->
        init_id(me);
        my_epoch = epoch[me];
        printf("worker %d: inits its own id again\n", me);
        step = back; back = idle
       }

    :: atomic { step != idle && kills > 0 ->
        kills--; disturbed = true;
        printf("worker %d: killed\n", me);
        if
        :: !LOST -> owner = 1 - owner; generation++
        :: true                    /* it is started again before its membership ends */
        fi;
        leave()
       }
    od
}

init { atomic { generation = 1; run Worker(0); run Worker(1) } }

active proctype Network()
{
end:
    do
    :: d_step { late_call > 0 ->
        printf("network: the call of attempt %d arrives\n", late_call);
        serve(late_call);
        late_call = 0
       }
    od
}

active proctype Group()
{
end:
    do
    :: d_step { moves > 0 && record == 0 ->
        moves--; disturbed = true;
        owner = 1 - owner;
        generation++;
        printf("group: the partition moves to worker %d\n", owner)
       }
    od
}

/* Quiet for good. */
active proctype Judge()
{
    timeout;
    d_step {
        must(record > 0, input_lost);
        must(record == 2 || effects == 1, effect_lost)
    }
}
