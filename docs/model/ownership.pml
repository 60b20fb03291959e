/* Recorded ownership: a producer has whatever partitions its worker has, and the set may change between
 * transactions. Each worker writes under an id of its own; a compacted topic lists, for each partition,
 * the ids that may write for it. What is left out, and how to run and read it, in README.md; the
 * decision in docs/adr/0030-an-entry-follows-each-init.md.
 *
 *   K0  read the entries of one's own id, then init it
 *   K1  add an entry (partition, id, claim) and wait for the acknowledgement; a claim is never used again
 *   K2  read the topic to its end
 *   K3  init every other id of an entry found in K2
 *   K4  remove exactly the entries that were read before an init of their id: those of other ids found in
 *       K2, those of one's own id found in K0
 *   K5  read the stable committed offset; commit it if the partition starts there. If that commit is
 *       suspect, the id is inited again, and the takeover is repeated from K0
 *   K6  after every further init of its own id (recycle), a worker writes an entry of each of its
 *       partitions anew, under another claim, in place of its earlier one
 *
 * A release removes one's own entry.
 *
 * -D switches that take one rule out:
 *   WITHOUT_GROUP_CHECK    the group accepts offsets of a member that lost the partition
 *   WITHOUT_INIT_FIRST     K1 before K0
 *   WITHOUT_ENTRY_ANEW     no K6
 *   WITHOUT_FRESH_CLAIMS   the entry has the key of the process, not of the takeover
 *   WITHOUT_ALL_IDS        K3 inits one of the listed ids only
 *   WITHOUT_OWN_KEYS       entries have the key of the partition: they overwrite each other
 *   WITHOUT_TIMELY_ENTRY   K1 after the first write
 *   WITHOUT_EXACT_REMOVAL  K4 removes every entry of the partition except one's own
 *   WITHOUT_EARLY_READ     K4 removes the entries of one's own id that K2 found, after the init
 *   WITHOUT_FENCE_FIRST    K5 before K3
 *   WITHOUT_STABLE_READS   K5 reads offsets of open transactions as if there were none
 *   WITHOUT_LATE_RELEASE   a lost partition is released before the commit
 *   WITHOUT_CLEAN_RELEASE  a suspect producer releases without a recycle
 *   WITHOUT_REPEAT         a takeover whose commit is suspect is not repeated
 *   WITHOUT_STATIC_ENTRY   MIXED: the worker with the static id adds no entries
 *   WITHOUT_RECORD         no K1 to K4, K6 (only the group protects)
 *   WITH_LATER_INCARNATION_SKIPPED  K3 skips an id of which a later claim is recorded anywhere
 */

#ifndef PARTITIONS
#define PARTITIONS 2
#endif
#ifndef RECORDS
#define RECORDS 1      /* in each partition */
#endif
#ifndef WORKERS
#define WORKERS 2      /* a third one is a second process under the id of the first one */
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LATE
#define LATE 1
#endif
#ifndef EXPIRIES
#define EXPIRIES 0
#endif
#ifndef BLIND
#define BLIND 0        /* looks at the group that do not show a lost partition yet */
#endif
#ifndef STARTS
#define STARTS 0       /* suspect commits of a start */
#endif
#ifndef EPOCHS
#define EPOCHS 16
#endif
#define IDS 2
#define CLAIMS 12
#ifdef SHORTEST
#define SCRATCH
#else
#define SCRATCH hidden
#endif
#define BIT(n) (1 << (n))
#define ID(worker) (worker == 2 -> 0 : worker)
#define AT(id, partition) ((id) * PARTITIONS + (partition))

mtype = { input_doubled, torn_transaction, offset_went_back, input_lost, left_open, unlisted_writer,
          endless_fencing };
mtype = { Produce, TxnOffsetCommit, EndTxn };
mtype = { ok, fenced, refused, stale_member, unheard };
mtype = { absent, gone, KR, K0, K1, K2, K3, K4, K5, KC, KI, K6, READY,
          s3, s4, s5, s7, FENCED, R1, TAKEN };

typedef Frame {
    mtype kind;
    byte sender, epoch;
    byte next[PARTITIONS];     /* 0, or the offset after the input, of each partition in the batch */
    byte given[PARTITIONS]
}

/* The coordinators: of transactions, by id, and of the group, by partition. */
byte epoch[IDS];
bool open[IDS];
byte written[IDS * PARTITIONS], pending[IDS * PARTITIONS];    /* 0, or the offset after the input */
byte offset[PARTITIONS];
byte visible[PARTITIONS];                                     /* bit set of inputs */
byte owner[PARTITIONS], moved[PARTITIONS];

/* The ownership topic: bit sets of claims. */
short listed[IDS * PARTITIONS];
#ifdef WITH_LATER_INCARNATION_SKIPPED
short by_second[PARTITIONS];         /* ghost: claims of worker 2 */
#endif

/* The workers. */
mtype step[WORKERS];
byte my_epoch[WORKERS];
byte has[WORKERS], batch[WORKERS];
byte claim[WORKERS * PARTITIONS];
byte given[WORKERS * PARTITIONS], position[WORKERS * PARTITIONS];
byte taking[WORKERS], to_fence[WORKERS];
short found[WORKERS * IDS];
bool suspect[WORKERS], recycled[WORKERS];

byte moves = MOVES, crashes = CRASHES, late = LATE, expiries = EXPIRIES, blind = BLIND,
     starts = STARTS;
bool twin;                    /* the second process of the first id has joined, the first one is out */
Frame held;

SCRATCH byte i, j, k;
SCRATCH byte yes;
SCRATCH Frame request;
SCRATCH mtype answer;

#if defined(ONLY)
#define LOOKED_FOR(anomaly) (anomaly == ONLY)
#elif defined(EXCEPT)
#define LOOKED_FOR(anomaly) (anomaly != EXCEPT)
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

inline end_open(id, commits)
{
    i = 0;
    do
    :: i < PARTITIONS ->
        if
        :: commits ->
            must(written[AT(id, i)] == pending[AT(id, i)], torn_transaction);
            if
            :: written[AT(id, i)] ->
                must(!(visible[i] & BIT(written[AT(id, i)])), input_doubled);
                visible[i] = visible[i] | BIT(written[AT(id, i)])
            :: else
            fi;
            if
            :: pending[AT(id, i)] ->
                must(pending[AT(id, i)] >= offset[i], offset_went_back);
                offset[i] = pending[AT(id, i)]
            :: else
            fi
        :: else
        fi;
        written[AT(id, i)] = 0;
        pending[AT(id, i)] = 0;
        i++
    :: else -> break
    od;
    i = 0;
    open[id] = false
}

inline init_producer(id)
{
    end_open(id, false);
    epoch[id]++;
    must(epoch[id] < EPOCHS, endless_fencing)
}

#ifndef WITHOUT_GROUP_CHECK
#define REFUSES(p) (request.next[p] && request.given[p] != moved[p])
#else
#define REFUSES(p) false
#endif
#if PARTITIONS == 1
#define GROUP_REFUSES REFUSES(0)
#else
#define GROUP_REFUSES (REFUSES(0) || REFUSES(1))
#endif

/* The property of the entries: an id that writes for a partition is found by a taker and by commands. */
inline must_be_listed(p)
{
#ifdef WITHOUT_RECORD
    skip
#else
    must(listed[AT(request.sender, p)], unlisted_writer)
#endif
}

inline broker()
{
    if
    :: request.epoch != epoch[request.sender] -> answer = fenced
    :: else ->
        answer = ok;
        if
        :: request.kind == Produce ->
            open[request.sender] = true;
            i = 0;
            do
            :: i < PARTITIONS ->
                if
                :: request.next[i] ->
                    must_be_listed(i);
                    written[AT(request.sender, i)] = request.next[i]
                :: else
                fi;
                i++
            :: else -> break
            od;
            i = 0
        :: request.kind == TxnOffsetCommit ->
            if
            :: !open[request.sender] -> answer = refused
            :: open[request.sender] && GROUP_REFUSES -> answer = stale_member
            :: else ->
                i = 0;
                do
                :: i < PARTITIONS ->
                    if
                    :: request.next[i] ->
                        must_be_listed(i);
                        pending[AT(request.sender, i)] = request.next[i]
                    :: else
                    fi;
                    i++
                :: else -> break
                od;
                i = 0
            fi
        :: request.kind == EndTxn ->
            if
            :: open[request.sender] -> end_open(request.sender, true)
            :: else
            fi
        fi
    fi
}

/* --- the workers --- */

#define LOST(w, p) (owner[p] != w || given[w * PARTITIONS + p] != moved[p])
#define MISSING(w, p) (owner[p] == w && !(has[w] & BIT(p)))
#define LOST_ONE(w, p) ((has[w] & BIT(p)) && LOST(w, p))
#ifdef WITHOUT_STABLE_READS
#define STABLE(p) true
#else
#define STABLE(p) (!pending[AT(0, p)] && !pending[AT(1, p)])
#endif
#if PARTITIONS == 1
#define ALL_STABLE(w) (!(has[w] & 1) || STABLE(0))
#define ANY_LOST(w) LOST_ONE(w, 0)
#define ANY_MISSING(w) MISSING(w, 0)
#else
#define ALL_STABLE(w) ((!(has[w] & 1) || STABLE(0)) && (!(has[w] & 2) || STABLE(1)))
#define ANY_LOST(w) (LOST_ONE(w, 0) || LOST_ONE(w, 1))
#define ANY_MISSING(w) (MISSING(w, 0) || MISSING(w, 1))
#endif
#define OUT(w) (twin && w == 0)
#define HAS_WORK(w, p) ((has[w] & BIT(p)) && position[w * PARTITIONS + p] < RECORDS)
#if PARTITIONS == 1
#define ANY_WORK(w) HAS_WORK(w, 0)
#else
#define ANY_WORK(w) (HAS_WORK(w, 0) || HAS_WORK(w, 1))
#endif
#define STATIC(w) (w == 1)
#if defined(WITHOUT_RECORD)
#define RECORDS_ENTRY(w) false
#define READS_ENTRIES(w) false
#elif defined(WITHOUT_STATIC_ENTRY)
#define RECORDS_ENTRY(w) (!STATIC(w))
#define READS_ENTRIES(w) true
#else
#define RECORDS_ENTRY(w) true
#define READS_ENTRIES(w) true
#endif


/* A first step of a takeover, and the one after each. */
#define FIRST KR
#define AFTER_K0 K1
#define AFTER_K1 K2
#if defined(WITHOUT_RECORD)
#undef FIRST
#define FIRST K0
#undef AFTER_K0
#define AFTER_K0 K5
#elif defined(WITHOUT_INIT_FIRST)    /* KR, K1, K0, K2 */
#define AFTER_KR K1
#undef AFTER_K0
#undef AFTER_K1
#define AFTER_K1 K0
#define AFTER_K0 K2
#elif defined(WITHOUT_TIMELY_ENTRY)  /* KR, K0, K2, K3, K4, K5 */
#undef AFTER_K0
#define AFTER_K0 K2
#elif defined(WITHOUT_FENCE_FIRST)
#define AFTER_K2 K5
#define AFTER_K5 K3
#define AFTER_K4 KC
#endif
#ifndef AFTER_KR
#define AFTER_KR K0
#endif
#ifndef AFTER_K2
#define AFTER_K2 K3
#endif
#ifndef AFTER_K3
#define AFTER_K3 K4
#endif
#ifndef AFTER_K4
#define AFTER_K4 K5
#endif
#ifndef AFTER_K5
#define AFTER_K5 KC
#endif
#define AFTER_R1 (RECORDS_ENTRY(me) -> K6 : TAKEN)

/* A claim that no entry has, and that no process has or will remove. */
#if WORKERS == 3
#define FOUND_BY_THIRD (found[4] | found[5] | (claim[2 * PARTITIONS] -> BIT(claim[2 * PARTITIONS]) : 0) | \
                        (claim[3 * PARTITIONS - 1] -> BIT(claim[3 * PARTITIONS - 1]) : 0))
#else
#define FOUND_BY_THIRD 0
#endif
#define CLAIMED(n) (claim[n] -> BIT(claim[n]) : 0)
#define IN_USE(p) (listed[AT(0, p)] | listed[AT(1, p)] | found[0] | found[1] | found[2] | found[3] | \
                   CLAIMED(p) | CLAIMED(PARTITIONS + p) | FOUND_BY_THIRD)

inline new_claim(w, p)
{
#ifdef WITHOUT_FRESH_CLAIMS
    k = w + 1;
#else
    k = 1;
    do
    :: IN_USE(p) & BIT(k) -> k++
    :: else -> break
    od;
#endif
    assert(k <= CLAIMS);
    claim[w * PARTITIONS + p] = k;
    k = 0
}

inline write_entry(w, p)
{
    if
    :: RECORDS_ENTRY(w) ->
#ifdef WITH_LATER_INCARNATION_SKIPPED
        by_second[p] = by_second[p] & ~CLAIMED(w * PARTITIONS + p);
#endif
        i = claim[w * PARTITIONS + p];
        new_claim(w, p);
#ifdef WITHOUT_OWN_KEYS
        listed[AT(0, p)] = 0;
        listed[AT(1, p)] = 0;
#endif
        listed[AT(ID(w), p)] = (listed[AT(ID(w), p)] & ~(i -> BIT(i) : 0)) | BIT(claim[w * PARTITIONS + p]);
        i = 0;
#ifdef WITH_LATER_INCARNATION_SKIPPED
        by_second[p] = (w == 2 -> by_second[p] | BIT(claim[w * PARTITIONS + p]) : by_second[p]);
#endif
        printf("worker %d: lists itself for partition %d, claim %d\n", w, p, claim[w * PARTITIONS + p])
    :: else
    fi
}

#define MY_BIT(w, p) BIT(claim[w * PARTITIONS + p])
#ifdef WITH_LATER_INCARNATION_SKIPPED
/* Of the two processes with id 0, the second one is the later incarnation: entries of the first are
 * skipped where the second one has an entry of any partition. */
#define IS_LISTED(id, p) (listed[AT(id, p)] && \
    !(id == 0 && !(listed[AT(0, p)] & by_second[p]) && (by_second[0] | by_second[PARTITIONS - 1])))
#else
#define IS_LISTED(id, p) listed[AT(id, p)]
#endif

/* Of one's own id, K4 removes what KR found; others are found in K2. */
inline read_own_entries(w, p)
{
    found[w * IDS + ID(w)] = (READS_ENTRIES(w) -> listed[AT(ID(w), p)] : 0)
}

inline read_entries(w, p)
{
    to_fence[w] = 0;
    i = 0;
    do
    :: i < IDS && READS_ENTRIES(w) ->
        if
        :: i != ID(w) && IS_LISTED(i, p) ->
            found[w * IDS + i] = listed[AT(i, p)];
#ifdef WITHOUT_ALL_IDS
            found[w * IDS + i] = listed[AT(i, p)]
#else
            to_fence[w] = to_fence[w] | BIT(i)
#endif
        :: i != ID(w) && !IS_LISTED(i, p) -> found[w * IDS + i] = listed[AT(i, p)]
        :: else ->
#ifdef WITHOUT_EARLY_READ
            found[w * IDS + i] = listed[AT(i, p)] & ~MY_BIT(w, p)
#endif
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

inline remove_entries(w, p)
{
    i = 0;
    do
    :: i < IDS && READS_ENTRIES(w) ->
#if defined(WITHOUT_EXACT_REMOVAL)
        listed[AT(i, p)] = (i == ID(w) -> listed[AT(i, p)] & MY_BIT(w, p) : 0);
#elif defined(WITHOUT_FRESH_CLAIMS)
        listed[AT(i, p)] = (i != ID(w) && found[w * IDS + i] -> 0 : listed[AT(i, p)]);
#else
        listed[AT(i, p)] = listed[AT(i, p)] & ~found[w * IDS + i];
#endif
        found[w * IDS + i] = 0;
        i++
    :: else -> break
    od;
    i = 0
}

inline let_go(w, p)
{
    has[w] = has[w] & ~BIT(p);
    position[w * PARTITIONS + p] = 0; given[w * PARTITIONS + p] = 0;
    claim[w * PARTITIONS + p] = 0;
#ifdef MIXED
    my_epoch[w] = (STATIC(w) -> 0 : my_epoch[w])     /* it closes the producer of the partition */
#endif
}

inline release(w, p)
{
    if
    :: RECORDS_ENTRY(w) ->
        listed[AT(ID(w), p)] = listed[AT(ID(w), p)] & ~BIT(claim[w * PARTITIONS + p])
    :: else
    fi
}

/* K6 */
inline list_anew(w)
{
    j = 0;
    do
    :: j < PARTITIONS ->
        if
        :: has[w] & BIT(j) -> write_entry(w, j)
        :: else
        fi;
        j++
    :: else -> break
    od;
    j = 0
}

inline write_request(w)
{
    request.kind = (step[w] == s3 -> Produce : (step[w] == s4 -> TxnOffsetCommit : EndTxn));
    request.sender = ID(w);
    request.epoch = my_epoch[w];
    i = 0;
    do
    :: i < PARTITIONS ->
        yes = (batch[w] & BIT(i)) && step[w] != s5;
        request.next[i] = (yes -> position[w * PARTITIONS + i] + 1 : 0);
        request.given[i] = (yes -> given[w * PARTITIONS + i] : 0);
        i++
    :: else -> break
    od;
    i = 0; yes = false
}

inline forget_request()
{
    request.kind = 0; request.sender = 0; request.epoch = 0; answer = ok;
    i = 0;
    do
    :: i < PARTITIONS -> request.next[i] = 0; request.given[i] = 0; i++
    :: else -> break
    od;
    i = 0
}

inline react(w)
{
    if
    :: answer == fenced || answer == stale_member -> batch[w] = 0; step[w] = FENCED
    :: answer == refused || answer == unheard -> batch[w] = 0; step[w] = R1
    :: answer == ok && step[w] == s3 ->
#ifdef WITHOUT_TIMELY_ENTRY
        j = 0;
        do
        :: j < PARTITIONS ->
            if
            :: (batch[w] & BIT(j)) && !claim[w * PARTITIONS + j] -> write_entry(w, j)
            :: else
            fi;
            j++
        :: else -> break
        od;
        j = 0;
#endif
        step[w] = s4
    :: answer == ok && step[w] == s4 -> step[w] = s5
    :: answer == ok && step[w] == s5 ->
        j = 0;
        do
        :: j < PARTITIONS ->
            if
            :: batch[w] & BIT(j) -> position[w * PARTITIONS + j]++
            :: else
            fi;
            j++
        :: else -> break
        od;
        j = 0;
        batch[w] = 0;
        step[w] = s7
    fi;
    forget_request()
}

inline end_process(w)
{
    j = 0;
    do
    :: j < PARTITIONS ->
        if
        :: owner[j] == w ->
            owner[j] = (w == 1 -> (twin -> 2 : 0) : 1);
            moved[j]++
        :: else
        fi;
        let_go(w, j);
        claim[w * PARTITIONS + j] = 0;
        j++
    :: else -> break
    od;
    j = 0;
    forget_process(w);
    step[w] = (OUT(w) -> gone : READY)
}

inline forget_process(w)
{
    my_epoch[w] = 0; has[w] = 0; batch[w] = 0; taking[w] = 0; to_fence[w] = 0;
    suspect[w] = false; recycled[w] = false;
    found[w * IDS] = 0; found[w * IDS + 1] = 0
}

#define SENDS(w) (step[w] == s3 || step[w] == s4 || step[w] == s5)

proctype Worker(byte me)
{
end:
    do
    /* READY: what was lost is released; what is new is taken over; else a transaction begins. */
    :: d_step { step[me] == READY && OUT(me) ->
        printf("worker %d: sees that another process has its name, ends\n", me);
        j = 0;
        do
        :: j < PARTITIONS -> let_go(me, j); claim[me * PARTITIONS + j] = 0; j++
        :: else -> break
        od;
        j = 0;
        forget_process(me);
        step[me] = gone
       }
    :: d_step { step[me] == READY && !OUT(me) && ANY_LOST(me) ->
        k = (LOST_ONE(me, 0) -> 0 : PARTITIONS - 1);
        printf("worker %d: releases partition %d\n", me, k);
        release(me, k);
        let_go(me, k);
        k = 0
       }
    :: d_step { step[me] == READY && !OUT(me) && !ANY_LOST(me) && ANY_MISSING(me) ->
        taking[me] = (MISSING(me, 0) -> 0 : PARTITIONS - 1);
        given[me * PARTITIONS + taking[me]] = moved[taking[me]];
        step[me] = FIRST
       }
    :: atomic { step[me] == READY && ANY_WORK(me) &&
                ((!OUT(me) && !ANY_LOST(me) && !ANY_MISSING(me)) ||
                 ((OUT(me) || ANY_LOST(me)) && blind > 0)) ->
        blind = (OUT(me) || ANY_LOST(me) -> blind - 1 : blind);
        if
        :: HAS_WORK(me, 0) -> batch[me] = 1
#if PARTITIONS == 2
        :: HAS_WORK(me, 1) -> batch[me] = 2
        :: HAS_WORK(me, 0) && HAS_WORK(me, 1) -> batch[me] = 3
#endif
        fi;
        printf("worker %d: 1, begins with partitions %d\n", me, batch[me]);
        step[me] = s3
       }

    /* The takeover. */
    :: d_step { step[me] == KR ->
        read_own_entries(me, taking[me]);
        step[me] = AFTER_KR
       }
    :: d_step { step[me] == K0 ->
        recycled[me] = recycled[me] || my_epoch[me] != 0;
        init_producer(ID(me));
        my_epoch[me] = epoch[ID(me)];
        printf("worker %d: K0, inits its id %d, epoch %d\n", me, ID(me), my_epoch[me]);
        step[me] = AFTER_K0
       }
    :: d_step { step[me] == K1 ->
        write_entry(me, taking[me]);
        step[me] = AFTER_K1
       }
    :: d_step { step[me] == K2 ->
        read_entries(me, taking[me]);
        printf("worker %d: K2, reads the entries of partition %d, to init: %d\n",
               me, taking[me], to_fence[me]);
        step[me] = AFTER_K2
       }
    :: d_step { step[me] == K3 ->
        if
        :: to_fence[me] ->
            k = (to_fence[me] & 1 -> 0 : 1);
            init_producer(k);
            printf("worker %d: K3, inits id %d, epoch %d\n", me, k, epoch[k]);
            to_fence[me] = to_fence[me] & ~BIT(k);
            k = 0
        :: else
        fi;
        step[me] = (to_fence[me] -> K3 : AFTER_K3)
       }
    :: d_step { step[me] == K4 ->
        remove_entries(me, taking[me]);
        printf("worker %d: K4, removes the entries that it found\n", me);
        step[me] = AFTER_K4
       }
    :: d_step { step[me] == K5 && STABLE(taking[me]) ->
        position[me * PARTITIONS + taking[me]] = offset[taking[me]];
        printf("worker %d: K5, reads the committed offset %d of partition %d\n",
               me, offset[taking[me]], taking[me]);
        step[me] = AFTER_K5
       }
    :: atomic { step[me] == KC ->
        if
        :: has[me] = has[me] | BIT(taking[me]);
            taking[me] = 0;
            step[me] = (recycled[me] && (has[me] & (has[me] - 1)) -> AFTER_R1 : READY);
            recycled[me] = false
        :: starts > 0 && my_epoch[me] == epoch[ID(me)] ->
            printf("worker %d: KC, commits the start, and is suspect\n", me);
            starts--;
            step[me] = KI
        fi
       }
    :: d_step { step[me] == KI ->
        init_producer(ID(me));
        my_epoch[me] = epoch[ID(me)];
        printf("worker %d: KC, inits its id %d again, epoch %d\n", me, ID(me), my_epoch[me]);
        recycled[me] = true;
#ifdef WITHOUT_REPEAT
        step[me] = KC
#else
        step[me] = FIRST
#endif
       }

    /* A transaction. */
    :: d_step { SENDS(me) ->
        write_request(me);
        broker();
        printf("worker %d: %e, sends %e of epoch %d: %e\n",
               me, step[me], request.kind, my_epoch[me], answer);
        react(me)
       }
    :: atomic { SENDS(me) && late > 0 && step[me] != s3 ->
        d_step {
            write_request(me);
            late--;
            held.kind = request.kind; held.sender = request.sender; held.epoch = request.epoch;
            i = 0;
            do
            :: i < PARTITIONS ->
                held.next[i] = request.next[i]; held.given[i] = request.given[i]; i++
            :: else -> break
            od;
            i = 0;
            forget_request()
        };
        if
        :: suspect[me] = true;
            printf("worker %d: %e, the request is late, will be repeated\n", me, step[me])
        :: printf("worker %d: %e, the request is late, gives up\n", me, step[me]);
            d_step { answer = unheard; react(me) }
        fi
       }
#ifdef WITHOUT_LATE_RELEASE
    :: d_step { step[me] == s5 && ANY_LOST(me) && (listed[AT(ID(me), 0)] & MY_BIT(me, 0)) ->
        release(me, 0);
        printf("worker %d: releases partition 0\n", me)
       }
#endif
    :: d_step { step[me] == s7 ->
#ifdef WITHOUT_CLEAN_RELEASE
        step[me] = (suspect[me] && !ANY_LOST(me) -> R1 : READY);
#else
        step[me] = (suspect[me] -> R1 : READY);
#endif
        suspect[me] = false
       }

    /* Recovery. */
    :: d_step { step[me] == FENCED ->
        if
        :: OUT(me) -> step[me] = READY
        :: else ->
            j = 0;
            do
            :: j < PARTITIONS ->
                if
                :: LOST_ONE(me, j) ->
                    printf("worker %d: FENCED, has lost partition %d\n", me, j);
                    let_go(me, j)
                :: else
                fi;
                j++
            :: else -> break
            od;
            j = 0;
            step[me] = (my_epoch[me] -> R1 : READY)
        fi
       }
    :: d_step { step[me] == R1 ->
        init_producer(ID(me));
        my_epoch[me] = epoch[ID(me)];
        suspect[me] = false;
        printf("worker %d: R1, inits its id %d, epoch %d\n", me, ID(me), my_epoch[me]);
        step[me] = AFTER_R1
       }
    :: d_step { step[me] == K6 ->
#ifndef WITHOUT_ENTRY_ANEW
        list_anew(me);
#endif
        printf("worker %d: K6, lists itself anew for partitions %d\n", me, has[me]);
        step[me] = TAKEN
       }
    :: d_step { step[me] == TAKEN && ALL_STABLE(me) ->
        j = 0;
        do
        :: j < PARTITIONS ->
            position[me * PARTITIONS + j] = (has[me] & BIT(j) -> offset[j] : 0);
            j++
        :: else -> break
        od;
        j = 0;
        printf("worker %d: TAKEN, reads the committed offsets\n", me);
        step[me] = READY
       }

    :: d_step { crashes > 0 && my_epoch[me] != 0 && step[me] != gone && step[me] != s7 ->
        crashes--;
        printf("worker %d: %e, killed\n", me, step[me]);
        end_process(me)
       }
    od
}

init {
    atomic {
        step[0] = READY; step[1] = READY;
#if WORKERS == 3
        step[2] = absent;
        run Worker(2);
#endif
        run Worker(0); run Worker(1)
    }
}

#define ABANDONED(d) (open[d] && !(my_epoch[0] == epoch[d] && ID(0) == d) && \
                      !(my_epoch[1] == epoch[d] && ID(1) == d) && \
                      !(WORKERS == 3 && my_epoch[WORKERS - 1] == epoch[d] && ID(WORKERS - 1) == d))

active proctype World()
{
end:
    do
    :: d_step { moves > 0 ->
        moves--;
        owner[0] = (owner[0] == 1 -> (twin -> 2 : 0) : 1);
        moved[0]++;
        printf("group: partition 0 moves to worker %d\n", owner[0])
       }
#if PARTITIONS == 2
    :: d_step { moves > 0 ->
        moves--;
        owner[1] = (owner[1] == 1 -> (twin -> 2 : 0) : 1);
        moved[1]++;
        printf("group: partition 1 moves to worker %d\n", owner[1])
       }
#endif
#if WORKERS == 3
    :: d_step { step[2] == absent ->
        step[2] = READY;
        twin = true;
        i = 0;
        do
        :: i < PARTITIONS ->
            if
            :: owner[i] == 0 -> owner[i] = 2; moved[i]++
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0;
        printf("group: worker 2 joins under the name of worker 0\n")
       }
#endif
    :: d_step { held.kind ->
        request.kind = held.kind; request.sender = held.sender; request.epoch = held.epoch;
        i = 0;
        do
        :: i < PARTITIONS ->
            request.next[i] = held.next[i]; request.given[i] = held.given[i];
            held.next[i] = 0; held.given[i] = 0;
            i++
        :: else -> break
        od;
        broker();
        printf("network: the late %e of id %d and epoch %d arrives: %e\n",
               held.kind, held.sender, held.epoch, answer);
        forget_request();
        held.kind = 0; held.sender = 0; held.epoch = 0
       }
    :: d_step { ABANDONED(0) || (open[0] && expiries > 0) ->
        if
        :: !ABANDONED(0) -> expiries--
        :: else
        fi;
        init_producer(0);
        printf("broker: the transaction of id 0 has outlasted its timeout, epoch %d\n", epoch[0])
       }
    :: d_step { ABANDONED(1) || (open[1] && expiries > 0) ->
        if
        :: !ABANDONED(1) -> expiries--
        :: else
        fi;
        init_producer(1);
        printf("broker: the transaction of id 1 has outlasted its timeout, epoch %d\n", epoch[1])
       }
    od
}

/* Quiet for good: everything is done, and nothing is left behind. */
active proctype Judge()
{
    timeout;
    d_step {
        must(!open[0] && !open[1], left_open);
        i = 0;
        do
        :: i < PARTITIONS ->
            must(visible[i] == (1 << (RECORDS + 1)) - 2 && offset[i] == RECORDS, input_lost);
            i++
        :: else -> break
        od
    }
}
