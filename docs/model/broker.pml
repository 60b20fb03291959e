/* Kafka as the cycle meets it: transaction coordinator, leader of the one output partition and group
 * coordinator, with version 1 of the transaction protocol (an epoch outlasts a transaction). Each
 * request is one atomic step; markers are written later, one partition at a time.
 */

#define NONE 255
#define TWICE 254
#define HAS_OUTPUT(input) (input != 1)

/* What must not happen. */
mtype = { aborted_read, torn_transaction, input_doubled, input_lost, offset_went_back,
          left_open, endless_fencing };

mtype = { nothing, InitProducerId, AddPartitionsToTxn, Produce, AddOffsetsToTxn,
          TxnOffsetCommit, EndTxn_commit, EndTxn_abort };

mtype = { ok, again, fenced, refused, stale_member, fatal, unheard };

mtype = { Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort };

typedef Frame {
    mtype kind;
    byte epoch;
    byte input;        /* what it is about: the offset committed is input + 1 */
    byte output;       /* 0 or 1, of a Produce */
    byte sequence;     /* of a Produce */
    byte attempt;      /* ghost: the transaction it was sent for */
    byte generation    /* of a TxnOffsetCommit */
}

/* The transaction coordinator. */
mtype state = Empty;
byte epoch;
bool has_output_partition, has_offsets_partition;
byte asked;                       /* ghost: the attempt whose EndTxn(commit) was obeyed */

/* The leader of the output partition. */
byte log_epoch, log_next;         /* next sequence number in that epoch */
bool log_open;                    /* the producer has records there that no marker follows */
byte pending[2 * RECORDS];        /* 0, or 1 + the attempt that wrote this output */
bool visible[2 * RECORDS];        /* to a read_committed reader */

/* The group coordinator. */
byte owner, generation;
byte offset, pending_offset = NONE, offsets_epoch;

/* What may still go wrong, and the frame that is late. */
byte moves = MOVES, crashes = CRASHES, late = LATE, expiries = EXPIRIES, blind = BLIND;
Frame held;
byte i;                           /* scratch */
byte my_epoch[2];                 /* of each worker's current producer; 0: it has none */

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

/* CONCURRENT_TRANSACTIONS makes the client ask again, which is as good as waiting. */
#define BETWEEN (state == PrepareCommit || state == PrepareAbort)
#define WAITS(request) (BETWEEN && request.kind != Produce && request.kind != TxnOffsetCommit)

#ifdef WITHOUT_VERIFICATION
#define VERIFIED(request, partition, its_epoch, is_open) true
#else
/* A partition that has records of the open transaction is not verified again. */
#define VERIFIED(request, partition, its_epoch, is_open) \
    ((is_open && request.epoch == its_epoch) || \
     (state == Ongoing && partition && request.epoch == epoch))
#endif

inline init_producer(answer)
{
    epoch++;
    must(epoch < EPOCHS, endless_fencing);
    if
    :: state == Ongoing -> state = PrepareAbort; answer = again
    :: else -> state = Empty; answer = ok
    fi
}

inline join_transaction(request, partition, answer)
{
    if
    :: request.epoch != epoch -> answer = fenced
    :: else -> state = Ongoing; partition = true; answer = ok
    fi
}

inline append(request, answer)
{
    if
    :: request.epoch < log_epoch -> answer = fenced
    :: else ->
        if
        :: !VERIFIED(request, has_output_partition, log_epoch, log_open) ->
            answer = (request.epoch == epoch -> refused : fenced)
        :: else ->
            if
            :: request.epoch > log_epoch -> log_epoch = request.epoch; log_next = 0
            :: else
            fi;
            if
            :: request.sequence < log_next -> answer = ok     /* DUPLICATE_SEQUENCE */
            :: request.sequence > log_next -> answer = refused
            :: else ->
                log_next++;
                log_open = true;
                pending[2 * request.input + request.output] =
                    (pending[2 * request.input + request.output] -> TWICE : 1 + request.attempt);
                answer = ok
            fi
        fi
    fi
}

/* A member that has lapsed sends generation -1. A group of the classic protocol takes its offsets,
 * as those of a consumer outside any group, if it is not static or the group is empty. */
#define LAPSED 254
#ifdef WITHOUT_GROUP_CHECK
#define ACCEPTED(request) (request.generation == LAPSED)
#else
#define ACCEPTED(request) false
#endif

inline take_offset(request, answer)
{
    if
    :: request.epoch < offsets_epoch -> answer = fenced
    :: else ->
        if
        :: !VERIFIED(request, has_offsets_partition, offsets_epoch, pending_offset != NONE) ->
            answer = (request.epoch == epoch -> fatal : fenced)
        :: else ->
            if
            :: request.generation != generation && !ACCEPTED(request) -> answer = stale_member
            :: else ->
                offsets_epoch = request.epoch;
                pending_offset = request.input + 1;
                answer = ok
            fi
        fi
    fi
}

/* A repeated EndTxn finds its work done; one that contradicts is INVALID_TXN_STATE. */
inline end_transaction(request, answer)
{
    if
    :: request.epoch != epoch -> answer = fenced
    :: else ->
        if
        :: state == Ongoing && request.kind == EndTxn_commit ->
            state = PrepareCommit; asked = request.attempt; answer = ok;
            i = 0;
            do
            :: i < RECORDS ->
                must(!pending[2 * i] == !pending[2 * i + 1], torn_transaction);
                must(!pending[2 * i] || pending_offset == i + 1, torn_transaction);
                i++
            :: else -> break
            od;
            i = 0
        :: state == Ongoing && request.kind == EndTxn_abort ->
            state = PrepareAbort; answer = ok
        :: state == CompleteCommit && request.kind == EndTxn_commit -> answer = ok
        :: state == CompleteAbort && request.kind == EndTxn_abort -> answer = ok
        :: else -> answer = fatal
        fi
    fi
}

inline broker(request, answer)
{
    if
    :: request.kind == InitProducerId -> init_producer(answer)
    :: request.kind == AddPartitionsToTxn ->
        join_transaction(request, has_output_partition, answer)
    :: request.kind == AddOffsetsToTxn ->
        join_transaction(request, has_offsets_partition, answer)
    :: request.kind == Produce -> append(request, answer)
    :: request.kind == TxnOffsetCommit -> take_offset(request, answer)
    :: else -> end_transaction(request, answer)
    fi
}

/* Nobody lives who could end it; the timeout surely does. */
#define ABANDONED (my_epoch[0] != epoch && my_epoch[1] != epoch)

/* Writes the markers, in any order, and ends transactions that last too long. */
active proctype Coordinator()
{
end:
    do
    :: d_step { BETWEEN && has_output_partition ->
        printf("broker: %e, marker in the output partition\n", state);
        i = 0;
        do
        :: i < 2 * RECORDS ->
            if
            :: state == PrepareCommit && pending[i] != 0 ->
                must(pending[i] == TWICE || pending[i] == 1 + asked, aborted_read);
                must(pending[i] != TWICE && visible[i] == 0, input_doubled);
                visible[i] = 1
            :: else
            fi;
            pending[i] = 0;
            i++
        :: else -> break
        od;
        i = 0;
        if
        :: log_epoch < epoch -> log_epoch = epoch; log_next = 0
        :: else
        fi;
        log_open = false;
        has_output_partition = false
       }
    :: d_step { BETWEEN && has_offsets_partition ->
        printf("broker: %e, marker in the offsets partition\n", state);
        if
        :: state == PrepareCommit && pending_offset != NONE ->
            must(pending_offset >= offset, offset_went_back);
            offset = pending_offset
        :: else
        fi;
        pending_offset = NONE;
        offsets_epoch = epoch;
        has_offsets_partition = false
       }
    :: d_step { BETWEEN && !has_output_partition && !has_offsets_partition ->
        state = (state == PrepareCommit -> CompleteCommit : CompleteAbort);
        asked = 0;
        printf("broker: %e\n", state)
       }
    :: d_step { state == Ongoing && (expiries > 0 || ABANDONED) ->
        if
        :: !ABANDONED -> expiries--
        :: else
        fi;
        epoch++;
        state = PrepareAbort;
        printf("broker: the transaction has outlasted its timeout, epoch %d\n", epoch)
       }
    od
}

