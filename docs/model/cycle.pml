/* The commit cycle of one input partition, two workers, one broker and a network that may deliver
 * one request late. The broker is in broker.pml; what is left out, and how to run and
 * read it, in README.md.
 *
 * Steps carry the numbers of the code's docstrings: T1-T3 (engine/worker/takeover.py), 1-7
 * (engine/task/task.py), R0-R3 (the session of a transaction, docs/adr/0019). Steps in capitals are its
 * states: READY, ABORTABLE, TAKEN (R2), FENCED (R0). 3 is OPEN, 4 and 5 are COMMITTING; R1_init is R1,
 * from UNKNOWN, ABORTABLE or FENCED, or the recycle that leads to SUSPECT (then TAKEN reads as SUSPECT).
 *
 * -D switches that take one rule out:
 *   WITHOUT_RECYCLE           a suspect producer goes on after its commit
 *   WITHOUT_RECYCLE_ON_ABORT  an aborted transaction's producer goes on
 *   WITHOUT_INIT_FIRST        T2 before T1
 *   WITHOUT_OFFSETS           an input without output sends no offsets
 *   WITHOUT_SETTLING          R3 without R2: on from where one was
 *   WITHOUT_FENCED_WAIT       R1 from FENCED without the wait of R0
 *   WITHOUT_VERIFICATION      brokers do not verify transactions (KIP-890 part 1 off)
 *   WITHOUT_STABLE_READS      T2 and R2 read offsets that a transaction may still change
 *   WITHOUT_GROUP_CHECK       the group takes offsets of a member that has lapsed
 *   WITHOUT_SUSPECT_CHECK     no R2 and R3 after the recycle of a suspect producer
 * -DONLY=name looks for one anomaly and overlooks the others; -DSHORTEST is for a search by breadth.
 */

#ifndef RECORDS
#define RECORDS 3    /* inputs; number 1 has no output, the others have two each */
#endif
#ifndef MOVES
#define MOVES 1      /* rebalances that the losing worker does not hear of at once: zombies */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LATE
#define LATE 1       /* frames that arrive after their repetition, their sender or their wait */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1   /* transactions that outlast their timeout */
#endif
#ifndef BLIND
#define BLIND 1      /* looks at the group that do not show a lost partition yet */
#endif
#define EPOCHS 14    /* more would be a loop of workers that fence each other */
#ifdef SHORTEST
#define SCRATCH      /* a search by breadth keeps everything in the state */
#else
#define SCRATCH hidden
#endif
#include "broker.pml"

mtype = { idle, T1, T2, READY, s3_add, s3_produce, s4_add, s4_send, s5, s6, s7,
          ABORTABLE, R1_init, TAKEN, FENCED, closing };

bool applied[RECORDS];            /* inputs whose step 6 was reached */
byte repeating;                   /* bit set of the workers that have to repeat InitProducerId */

/* One worker: it owns the partition, believes so, or waits for it. */

#define SENDS (step == T1 || step == s3_add || step == s3_produce || step == s4_add || \
               step == s4_send || step == s5 || step == ABORTABLE || step == R1_init || \
               step == closing)
#define INITS (step == T1 || step == R1_init)
#define LOST (member != generation)
#ifdef WITHOUT_STABLE_READS
#define STABLE true
#else
#define STABLE (pending_offset == NONE)
#endif
#ifdef WITHOUT_INIT_FIRST
#define FIRST T2
#define AFTER_T1 READY
#define AFTER_T2 T1
#else
#define FIRST T1
#define AFTER_T1 T2
#define AFTER_T2 READY
#endif

inline write_request()
{
    request.kind = (INITS -> InitProducerId :
                   (step == s3_add -> AddPartitionsToTxn :
                   (step == s3_produce -> Produce :
                   (step == s4_add -> AddOffsetsToTxn :
                   (step == s4_send -> TxnOffsetCommit :
                   (step == s5 -> EndTxn_commit : EndTxn_abort))))));
    request.epoch = (request.kind == InitProducerId -> 0 : my_epoch[me]);
    request.input = (step == s3_produce || step == s4_send -> position : 0);
    request.output = (step == s3_produce -> output : 0);
    request.sequence = (step == s3_produce -> my_sequence : 0);
    request.attempt = (step == s3_produce || step == s5 -> 8 * my_epoch[me] + attempt : 0);
    request.generation = (step == s4_send -> batch_member : 0)
}

inline hold()
{
    late--;
    held.kind = request.kind; held.epoch = request.epoch; held.input = request.input;
    held.output = request.output; held.sequence = request.sequence;
    held.attempt = request.attempt; held.generation = request.generation
}

/* An answer of `again` stands for CONCURRENT_TRANSACTIONS; librdkafka asks again after 500 ms. */
inline note_repetition()
{
    repeating = repeating & ~(1 << me);
    if
    :: answer == again -> repeating = repeating | (1 << me)
    :: else
    fi
}

inline drop()
{
    output = 0; batch_member = 0
}

inline leave()
{
    drop();
    my_epoch[me] = 0; my_sequence = 0; attempt = 0; position = 0; member = 0;
    suspect = false; unsettled = false;
    step = idle
}

inline end_process()
{
    repeating = repeating & ~(1 << me);
    if
    :: !LOST -> owner = 1 - owner; generation++
    :: else
    fi;
    leave()
}

inline recover(first)
{
    drop();
    unsettled = true;
    step = first
}

/* What a worker does with the answer: librdkafka's class of it, then transactions/session. */
inline react()
{
    note_repetition();
    if
    :: step == closing -> leave()
    :: step == ABORTABLE && answer != fenced ->
#ifdef WITHOUT_RECYCLE_ON_ABORT
        step = (answer == ok -> TAKEN : R1_init)
#else
        step = R1_init
#endif
    :: answer == again
    :: answer == fenced || answer == stale_member -> recover(FENCED)
    :: answer == fatal -> end_process()
    :: answer == refused -> recover(ABORTABLE)
    :: answer == unheard && step == s5 -> recover(R1_init)
    :: answer == unheard && step != s5 -> recover(ABORTABLE)
    :: answer == ok && step == T1 -> my_epoch[me] = epoch; step = AFTER_T1
    :: answer == ok && step == s3_add -> step = s3_produce
    :: answer == ok && step == s3_produce ->
        my_sequence++;
        output++;
        if
        :: output == 2 -> output = 0; step = s4_add
        :: else
        fi
    :: answer == ok && step == s4_add -> step = s4_send
    :: answer == ok && step == s4_send -> step = s5
    :: answer == ok && step == s5 -> step = s6
    :: answer == ok && step == R1_init ->
        my_epoch[me] = epoch;
        my_sequence = 0;
        attempt = 0;
        suspect = false;
        step = (unsettled -> TAKEN : READY);
        unsettled = false
    fi
}

SCRATCH Frame request;
SCRATCH mtype answer;

proctype Worker(byte me)
{
    mtype step = idle;
    byte my_sequence;                /* the current producer's next */
    byte position;                   /* the input that comes next */
    byte output, attempt, batch_member;
    byte member;                     /* the generation it was given the partition in */
    bool suspect, unsettled;

end:
    do
    :: d_step { step == idle && owner == me -> member = generation; step = FIRST }

    /* T2, R2: only stable offsets are read. */
    :: d_step { (step == T2 || step == TAKEN) && STABLE ->
#ifdef WITHOUT_SETTLING
        position = (step == TAKEN -> position : offset);
#else
        position = offset;
#endif
        step = (step == TAKEN -> READY : AFTER_T2);
        printf("worker %d: reads the committed offset %d\n", me, position)
       }

    /* T3 and 1-2; nothing is open here, so a lost partition is just let go. */
    :: d_step { step == READY && LOST ->
        printf("worker %d: sees that the partition is lost\n", me);
        leave()
       }
    :: atomic { step == READY && position < RECORDS && (!LOST || blind > 0) ->
        batch_member = member;
        if
        :: LOST -> blind--;
            if
            :: true
            :: batch_member = LAPSED
            fi
        :: else
        fi;
        attempt++;
        printf("worker %d: 1, begins with input %d\n", me, position);
#ifdef WITHOUT_OFFSETS
        step = (HAS_OUTPUT(position) -> s3_add : s6)
#else
        step = (HAS_OUTPUT(position) -> s3_add : s4_add)
#endif
       }
    :: d_step { step == s4_add && LOST ->
        printf("worker %d: sees that the partition is lost, closes\n", me);
        step = closing
       }

    /* Every request: answered at once; or late, and repeated on a new connection; or late, and
     * the call gives up; or late, and the worker dies. */
    :: d_step { SENDS && !(BETWEEN && step != s3_produce && step != s4_send) ->
        write_request();
        broker(request, answer);
        printf("worker %d: %e, sends %e of epoch %d: %e\n",
               me, step, request.kind, my_epoch[me], answer);
        react()
       }
    :: atomic { SENDS && late > 0 ->
        d_step { write_request(); hold() };
        if
        :: suspect = suspect || !INITS;
            printf("worker %d: %e, %e is late, will be repeated\n", me, step, request.kind)
        :: !INITS ->
            printf("worker %d: %e, %e is late, gives up\n", me, step, request.kind);
            d_step { answer = unheard; react() }
        :: crashes > 0 ->
            printf("worker %d: %e, %e is late, killed\n", me, step, request.kind);
            d_step { crashes--; end_process() }
        fi
       }
    :: d_step { SENDS && crashes > 0 ->
        printf("worker %d: %e, killed before it sends\n", me, step);
        crashes--;
        end_process()
       }

    /* 6 */
    :: d_step { step == s6 ->
        must(!applied[position], input_doubled);
        applied[position] = true;
        printf("worker %d: 6, input %d is done\n", me, position);
        position++;
        drop();
        step = s7
       }

    /* 7 */
    :: d_step { step == s7 ->
#ifdef WITHOUT_RECYCLE
        step = READY;
#else
        step = (suspect -> R1_init : READY);
#endif
#ifndef WITHOUT_SUSPECT_CHECK
        unsettled = suspect;
#endif
        suspect = false
       }

    :: d_step { step == FENCED && LOST ->
        printf("worker %d: FENCED, R0, has lost the partition\n", me);
        leave()
       }
    /* Two heartbeats are longer than 500 ms: an InitProducerId that is repeated comes first. */
#ifdef WITHOUT_FENCED_WAIT
    :: d_step { step == FENCED && !LOST -> step = R1_init }
#else
    :: d_step { step == FENCED && !LOST && !repeating -> step = R1_init }
#endif
    od
}

init { atomic { run Worker(0); run Worker(1) } }

SCRATCH mtype nobody;

active proctype Network()
{
end:
    do
    :: d_step { held.kind != nothing && !WAITS(held) ->
        broker(held, nobody);
        printf("network: the late %e of epoch %d arrives: %e\n", held.kind, held.epoch, nobody);
        nobody = ok;
        held.kind = nothing; held.epoch = 0; held.input = 0; held.output = 0;
        held.sequence = 0; held.attempt = 0; held.generation = 0
       }
    od
}

active proctype Group()
{
end:
    do
    :: d_step { moves > 0 ->
        moves--;
        owner = 1 - owner;
        generation++;
        printf("group: the partition moves to worker %d\n", owner)
       }
    od
}

/* Quiet for good: everything is done, and nothing is left behind. */
active proctype Judge()
{
    timeout;
    d_step {
        must(state != Ongoing, left_open);
        must(pending_offset == NONE && !log_open, left_open);
        i = 0;
        do
        :: i < RECORDS ->
            must(!HAS_OUTPUT(i) || (visible[2 * i] == 1 && visible[2 * i + 1] == 1), input_lost);
            i++
        :: else -> break
        od;
        must(offset == RECORDS, input_lost)
    }
}
