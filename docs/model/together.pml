/* One decision for Kafka and PostgreSQL: the rows of a transaction and its outputs, all or nothing. The
 * database decides. What is left out, and how to run and read it, in README.md; the protocol in
 * docs/adr/0033-the-database-decides.md.
 *
 * One transaction of an id:
 *   V1  begin; produce the outputs; send the offsets with the transaction's number; flush
 *   V2  one database transaction: lock the id's row and check its epoch, write the rows, and the decision, which
 *       has all that V1 sent. Its commit decides
 *   V3  EndTxn(commit). The next transaction begins after its acknowledgement
 * Taking over from an id, its own included, after any doubt:
 *   V4  raise the epoch of the id's row, and read its decision. The statement waits for a database transaction in
 *       doubt, whose session it may end
 *   V5  init the id: what is open is aborted, a late EndTxn is refused
 *   V6  read the stable offset. If it is before the decision's: V1 again, from the decision; then V3; no rows
 * A taker does V4 and V5 for every listed id, then V6 for each, its own last, then reads the stable offset.
 *
 * An offset stands for an offset and its number here: each transaction has an input.
 *
 * -D switches that take one rule out:
 *   WITHOUT_DATABASE_FENCE  V4 raises no epoch
 *   WITHOUT_LOCK            V4 reads the decision without the lock of the row, and ends nobody
 *   WITHOUT_EPOCH_CHECK     V2 does not check the epoch
 *   WITHOUT_DECISION_FIRST  V3 before V2
 *   WITHOUT_COMPARISON      V6 compares nothing: a decision is always produced again
 *   WITHOUT_REPLAY          V6 produces nothing again
 *   WITHOUT_OFFSETS_AGAIN   what V6 produces again has no offsets
 *   WITHOUT_INIT_FIRST      V6 before V5
 *   WITHOUT_DECISION_READ_FIRST  V5 before V4
 *   WITHOUT_DOUBT           a COMMIT without an answer counts as one that failed: the input runs again
 *   WITHOUT_RECOVERY        an EndTxn without an answer counts as one that succeeded
 *   WITHOUT_ALL_IDS         a taker takes its own id only
 *   WITHOUT_GROUP_CHECK     the group takes offsets of a member that lost the partition
 *   WITHOUT_STABLE_READS    the offset of an open transaction is no hindrance
 * -DONLY=name looks for one anomaly and overlooks the others; -DSHORTEST is for a search by breadth.
 */

#ifndef RECORDS
#define RECORDS 2      /* each has one row and one output */
#endif
#ifndef MOVES
#define MOVES 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef DOUBTS
#define DOUBTS 1       /* a COMMIT or an EndTxn without an answer */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1     /* Kafka transactions of living workers that outlast their timeout */
#endif
#define NONE 255
#define EPOCHS 15      /* more would be a loop of workers that fence each other */
#ifdef SHORTEST
#define SCRATCH        /* a search by breadth keeps everything in the state */
#else
#define SCRATCH hidden
#endif

/* What must not happen. */
mtype = { row_doubled, input_doubled, torn_decision, undecided_output, input_lost, offset_went_back,
          left_open, endless_fencing };

mtype = { idle, V4, V5, V6, produce_again, end_again, T2, READY, D1_produce, D1_offsets, D2_open,
          D2_commit, V3, FENCED };

mtype = { no_session, in_progress, commit_sent };

/* Kafka. The ends of a transaction are one step each: cycle.pml has the markers. */
byte epoch[2];                   /* of each id */
bool ongoing[2];
byte pending_output[2] = NONE, pending_offset[2] = NONE;
byte late_id = NONE, late_epoch; /* of an EndTxn(commit) that arrives later */
byte holder[2];                  /* 1 + the living worker that has inited the id last; 0: there is none */
byte owner, generation, offset;
byte outputs[RECORDS];           /* visible to a read_committed reader */

/* The database. */
byte row_epoch[2];               /* of each id's row */
byte decision[2];                /* of each id: 1 + the input; 0: there is none */
mtype session[2] = no_session;   /* holds the lock of the id's row */
byte session_input[2];
byte rows[RECORDS];

byte moves = MOVES, crashes = CRASHES, doubts = DOUBTS, expiries = EXPIRIES;
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

inline abort_open(whose)
{
    epoch[whose]++;
    must(epoch[whose] < EPOCHS, endless_fencing);
    ongoing[whose] = false; pending_output[whose] = NONE; pending_offset[whose] = NONE
}

inline end_transaction(whose, its_epoch)
{
    if
    :: its_epoch == epoch[whose] && ongoing[whose] ->
        if
        :: pending_output[whose] != NONE ->
            must(rows[pending_output[whose]] > 0, undecided_output);
            must(outputs[pending_output[whose]] == 0, input_doubled);
            outputs[pending_output[whose]]++
        :: else
        fi;
        if
        :: pending_offset[whose] != NONE ->
            must(pending_offset[whose] >= offset, offset_went_back);
            offset = pending_offset[whose]
        :: else
        fi;
        ongoing[whose] = false; pending_output[whose] = NONE; pending_offset[whose] = NONE;
        committed = 1
    :: else -> committed = 0
    fi
}

/* The database executes a COMMIT. */
inline decide(whose)
{
    rows[session_input[whose]]++;
    must(rows[session_input[whose]] == 1, row_doubled);
    decision[whose] = session_input[whose] + 1;
    session[whose] = no_session; session_input[whose] = 0
}

#define LOST (member != generation)
#ifdef WITHOUT_STABLE_READS
#define STABLE true
#else
#define STABLE (pending_offset[0] == NONE && pending_offset[1] == NONE)
#endif
#ifdef WITHOUT_GROUP_CHECK
#define REFUSED false
#else
#define REFUSED LOST
#endif
#ifdef WITHOUT_EPOCH_CHECK
#define VALID true
#else
#define VALID (row_epoch[me] == my_row)
#endif
#ifdef WITHOUT_ALL_IDS
#define FIRST_ID me
#else
#define FIRST_ID (1 - me)
#endif
/* The order of the three. */
#ifdef WITHOUT_DECISION_READ_FIRST
#define FIRST V5
#define AFTER_F1 (id == me -> V6 : V5)
#define AFTER_F2 V4
#define NEXT_AFTER_F1 (id == me -> first : me)
#define NEXT_AFTER_F2 id
#define AFTER_F3 T2
#else
#define FIRST V4
#ifdef WITHOUT_INIT_FIRST
#define AFTER_F1 (id == me -> V6 : V4)
#define AFTER_F2 (id == me -> T2 : V5)
#define NEXT_AFTER_F1 (id == me -> first : me)
#define NEXT_AFTER_F2 me
#define AFTER_F3 V5
#else
#define AFTER_F1 V5
#define AFTER_F2 (id == me -> V6 : V4)
#define NEXT_AFTER_F1 id
#define NEXT_AFTER_F2 (id == me -> first : me)
#define AFTER_F3 T2
#endif
#endif

/* V6 is through for an id. */
inline settled()
{
    if
    :: id != me -> id = me; step = V6
    :: else -> id = first; step = AFTER_F3
    fi
}

inline leave()
{
    if
    :: session[me] == in_progress -> session[me] = no_session; session_input[me] = 0
    :: else                        /* a COMMIT that was sent may arrive */
    fi;
    holder[0] = (holder[0] == 1 + me -> 0 : holder[0]);
    holder[1] = (holder[1] == 1 + me -> 0 : holder[1]);
    my_epoch[0] = 0; my_epoch[1] = 0; my_row = 0; member = 0; position = 0; id = 0; first = 0;
    seen[0] = 0; seen[1] = 0;
    step = idle
}

/* R0: the partition is still owned, or it is left. */
inline recover()
{
    if
    :: session[me] == in_progress -> session[me] = no_session; session_input[me] = 0
    :: else
    fi;
    step = FENCED
}

SCRATCH byte committed;

proctype Worker(byte me)
{
    mtype step = idle;
    byte id, first;              /* that is being taken over; the first one of them */
    byte my_epoch[2], my_row;    /* of the producers; of the own id's row */
    byte seen[2];                /* the decisions that V4 has read */
    byte position, member;

end:
    do
    :: d_step { step == idle && owner == me ->
        member = generation;
        first = FIRST_ID; id = first;
        step = FIRST
       }

    /* --- taking over --- */
    /* The statement is the next one to have the lock: whoever ends a session is not overtaken. */
    :: atomic { step == V4 ->
#ifndef WITHOUT_LOCK
        if
        :: session[id] != no_session ->
            printf("worker %d: V4 ends the session of id %d\n", me, id);
            session[id] = no_session; session_input[id] = 0
        :: session[id] == commit_sent ->
            printf("worker %d: V4 waits for the COMMIT of id %d\n", me, id);
            decide(id)
        :: else
        fi;
#endif
#ifndef WITHOUT_DATABASE_FENCE
        row_epoch[id]++;
#endif
        seen[id] = decision[id];
        my_row = (id == me -> row_epoch[id] : my_row);
        printf("worker %d: V4 of id %d, decision %d\n", me, id, seen[id]);
        step = AFTER_F1; id = NEXT_AFTER_F1
       }
    :: d_step { step == V5 ->
        abort_open(id);
        my_epoch[id] = epoch[id]; holder[id] = 1 + me;
        printf("worker %d: V5 inits id %d, epoch %d\n", me, id, epoch[id]);
        step = AFTER_F2; id = NEXT_AFTER_F2
       }
    :: d_step { step == V6 && STABLE ->
        printf("worker %d: V6 of id %d, decision %d, offset %d\n", me, id, seen[id], offset);
        if
#ifdef WITHOUT_REPLAY
        :: true -> settled()
#else
#ifdef WITHOUT_COMPARISON
        :: seen[id] > 0 -> step = produce_again
#else
        :: seen[id] > offset -> step = produce_again
#endif
        :: else -> settled()
#endif
        fi
       }
    :: d_step { step == produce_again ->
        if
        :: my_epoch[id] != epoch[id] -> recover()
        :: my_epoch[id] == epoch[id] && REFUSED -> leave()
        :: else ->
            ongoing[id] = true;
            pending_output[id] = seen[id] - 1;
#ifndef WITHOUT_OFFSETS_AGAIN
            pending_offset[id] = seen[id];
#endif
            printf("worker %d: produces the decision of id %d again\n", me, id);
            step = end_again
        fi
       }
    :: d_step { step == end_again ->
        end_transaction(id, my_epoch[id]);
        printf("worker %d: ends it: %d\n", me, committed);
        if
        :: committed -> settled()
        :: else -> recover()
        fi
       }
    :: d_step { step == end_again && doubts > 0 ->
        doubts--;
        end_transaction(id, my_epoch[id]);
        printf("worker %d: ends it, no answer\n", me);
        recover()
       }
    :: d_step { step == T2 && STABLE ->
        position = offset;
        printf("worker %d: T2, offset %d\n", me, position);
        first = me;
        step = READY
       }

    /* --- a transaction --- */
    :: d_step { step == READY && LOST -> printf("worker %d: has lost it\n", me); leave() }
    :: d_step { step == READY && position < RECORDS ->
        printf("worker %d: begins with input %d\n", me, position);
        step = D1_produce
       }
    :: d_step { step == D1_produce ->
        if
        :: my_epoch[me] != epoch[me] -> recover()
        :: else ->
            ongoing[me] = true;
            pending_output[me] = position;
            step = D1_offsets
        fi
       }
    :: d_step { step == D1_offsets ->
        if
        :: my_epoch[me] != epoch[me] || REFUSED -> recover()
        :: else ->
            pending_offset[me] = position + 1;
            printf("worker %d: V1 is through\n", me);
#ifdef WITHOUT_DECISION_FIRST
            step = V3
#else
            step = D2_open
#endif
        fi
       }
    :: d_step { step == D2_open && session[me] == no_session ->
        if
        :: !VALID -> recover()
        :: else ->
            session[me] = in_progress; session_input[me] = position;
            printf("worker %d: V2, row locked\n", me);
            step = D2_commit
        fi
       }
    :: d_step { step == D2_commit ->
        if
        :: session[me] == in_progress ->
            decide(me);
            printf("worker %d: V2, decided\n", me);
#ifdef WITHOUT_DECISION_FIRST
            position++;
            step = READY
#else
            step = V3
#endif
        :: else -> recover()     /* a taker has ended the session */
        fi
       }
    /* No answer to the COMMIT: it is executed, or it arrives later, or never. */
    :: atomic { step == D2_commit && doubts > 0 && session[me] == in_progress ->
        doubts--;
        if
        :: decide(me); printf("worker %d: V2, decided, no answer\n", me)
        :: session[me] = commit_sent; printf("worker %d: V2, COMMIT is late\n", me)
        fi;
#ifdef WITHOUT_DOUBT
        ongoing[me] = false; pending_output[me] = NONE; pending_offset[me] = NONE;
        step = READY
#else
        recover()
#endif
       }
    :: d_step { step == V3 ->
        end_transaction(me, my_epoch[me]);
        printf("worker %d: V3: %d\n", me, committed);
        if
        :: committed ->
#ifdef WITHOUT_DECISION_FIRST
            step = D2_open
#else
            position++;
            step = READY
#endif
        :: else -> recover()
        fi
       }
    /* No answer to the EndTxn: it is executed, or it arrives later. */
    :: atomic { step == V3 && doubts > 0 && late_id == NONE ->
        doubts--;
        if
        :: end_transaction(me, my_epoch[me]); printf("worker %d: V3, no answer\n", me)
        :: late_id = me; late_epoch = my_epoch[me]; printf("worker %d: V3 is late\n", me)
        fi;
#ifdef WITHOUT_RECOVERY
        position++;
        step = READY
#else
        recover()
#endif
       }

    :: d_step { step == FENCED && LOST -> printf("worker %d: has lost it\n", me); leave() }
    /* In the middle of a takeover all ids are taken again; afterwards its own one only. */
    :: d_step { step == FENCED && !LOST ->
        id = first;
        step = FIRST
       }

    :: atomic { step != idle && crashes > 0 ->
        crashes--;
        printf("worker %d: killed\n", me);
        if
        :: !LOST -> owner = 1 - owner; generation++
        :: true                    /* it is started again before its membership ends */
        fi;
        leave()
       }
    od
}

init { atomic { run Worker(0); run Worker(1) } }

/* Nobody lives who could end it; the timeout surely does. */
#define MAY_EXPIRE(whose) (ongoing[whose] && (expiries > 0 || holder[whose] == 0))

inline expire(whose)
{
    expiries = (holder[whose] == 0 -> expiries : expiries - 1);
    printf("broker: the transaction of id %d has outlasted its timeout\n", whose);
    abort_open(whose)
}

active proctype Network()
{
end:
    do
    :: d_step { session[0] == commit_sent -> printf("network: the COMMIT of id 0 arrives\n"); decide(0) }
    :: d_step { session[1] == commit_sent -> printf("network: the COMMIT of id 1 arrives\n"); decide(1) }
    :: d_step { late_id != NONE ->
        end_transaction(late_id, late_epoch);
        printf("network: the EndTxn of id %d arrives: %d\n", late_id, committed);
        late_id = NONE; late_epoch = 0
       }
    :: d_step { MAY_EXPIRE(0) -> expire(0) }
    :: d_step { MAY_EXPIRE(1) -> expire(1) }
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

/* Quiet for good. */
active proctype Judge()
{
    timeout;
    d_step {
        must(!ongoing[0] && !ongoing[1], left_open);
        i = 0;
        do
        :: i < RECORDS ->
            must(rows[i] == outputs[i], torn_decision);
            must(rows[i] == 1, input_lost);
            i++
        :: else -> break
        od;
        must(offset == RECORDS, input_lost)
    }
}
