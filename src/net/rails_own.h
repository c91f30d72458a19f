/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of rails: rails.c has the thread, the streams and the clock,
 * rail_carry.c what goes over a rail, rail_door.c how a rail comes to be.
 * Everything here is the thread's alone, once it runs. */
#ifndef LHI_RAILS_OWN_H
#define LHI_RAILS_OWN_H

#include "net/guests.h"
#include "net/rails.h"
#include "net/seal.h"
#include "net/wire.h"

#include <pthread.h>
#include <sys/types.h>

/* A piece of a peer's stream. */
typedef struct lhi_segment {
    uint64_t number;
    uint32_t size; /* 0: the stream ends here */
    uint32_t rail; /* that it was sent over last */
    bool waits;    /* to be sent, or sent again */
    bool again;    /* was sent before */
    bool in_hands; /* of the rail that is writing it */
    bool let_go;   /* acknowledged meanwhile: that rail releases it */
    unsigned char bytes[];
} lhi_segment;

typedef enum lhi_rail_state {
    LHI_RAIL_DOWN,
    LHI_RAIL_CONNECTING,
    LHI_RAIL_GREETING, /* RAIL is said, CHALLENGE to come */
    LHI_RAIL_PROVING,  /* PROOF is said, WELCOME to come */
    LHI_RAIL_UP
} lhi_rail_state;

typedef struct lhi_rail {
    lhi_rail_state state;
    int fd;           /* -1: DOWN */
    bool was_up;      /* once */
    bool knocks;      /* CONNECTING: only to see whether anybody listens */
    bool has_room;    /* the socket may take more */
    int error;        /* of the last attempt, or why it went; 0: silence */
    int64_t heard_ns; /* UP */
    int64_t spoke_ns;
    int64_t limit_ns; /* of its silence */
    int64_t until_ns; /* of an attempt */
    int64_t again_ns; /* DOWN: when to dial */
    int64_t gone_ns;  /* since when, of one that was up; 0: it is not gone */
    lhi_handshake shake;
    unsigned char greeting[LHI_HELLO_BYTES];
    size_t n_greeting;
    int64_t asked_ns; /* when the other end was asked for an answer */

    /* What is being written: head, payload of `out`, tail. */
    lhi_seal *seals_out, *seals_in;
    bool writes;
    lhi_segment *out; /* NULL: no payload */
    size_t out_size, out_sent;
    unsigned char out_head[LHI_RAIL_HEAD + LHI_SEAL_BYTES];
    unsigned char out_tail[LHI_SEAL_BYTES];

    /* What is being read. */
    lhi_rail_head in_frame;
    size_t in_got; /* bytes of head, payload and tail */
    lhi_segment *in;
    unsigned char in_head[LHI_RAIL_HEAD + LHI_SEAL_BYTES];
    unsigned char in_tail[LHI_SEAL_BYTES];
} lhi_rail;

typedef struct lhi_rail_peer {
    int fd;         /* the thread's end of the stream; -1: none */
    bool out_ended; /* our rank writes no more: the last segment says so */
    bool in_ended;  /* the peer does not */
    bool in_shut;   /* and our rank has been told */
    bool deaf;      /* our rank reads no more: what comes is dropped */
    bool given_up;
    /* Segments by number % LHI_RAIL_WINDOW; NULL until there are any. */
    lhi_segment **sent, **came;
    uint64_t acknowledged; /* all before it are */
    uint64_t next;         /* number of the next segment */
    uint64_t look_from;    /* no segment before it waits */
    uint32_t n_waiting;
    uint64_t expected;  /* all before it are delivered */
    size_t n_delivered; /* bytes of that one */
    bool owes;          /* an acknowledgement */
    uint32_t turn;      /* the rail that is asked first */
    int64_t heard_ns;   /* over any rail */
    int64_t moved_ns;   /* when one was acknowledged, or none was awaited */
    lhi_rail *rails;
} lhi_rail_peer;

/* A rail has gone, or come back. */
typedef struct lhi_rail_news {
    uint32_t peer, rail;
    int error;       /* why it has gone; 0: silence */
    int64_t away_ns; /* back after so long; negative: it has gone */
} lhi_rail_news;

enum { LHI_RAIL_NEWS = 16 };

struct lhi_rails {
    uint32_t rank, n_ranks, n_rails;
    int listeners[LHI_MOST_RAILS];
    unsigned char *addresses, *keys;
    unsigned char job[32];
    int64_t gone_ns;
    lhi_failure *failure;
    lhi_rail_peer *peers;
    lhi_guests guests;
    struct pollfd *polls;
    lhi_segment *spare; /* what a rank has written is read into; or NULL */
    int poke;
    pthread_t thread;
    uint32_t n_up; /* atomic: rails that are there, or were */
    uint32_t asks; /* atomic: what the thread is to do */
    int64_t close_by_ns;
    lhi_rails_seen seen;  /* atomic, each */
    pthread_mutex_t lock; /* of the news: the oldest are lost if nobody asks */
    lhi_rail_news news[LHI_RAIL_NEWS];
    uint32_t n_news, n_told;
};

/* `asks` */
enum { LHI_RAILS_RUN, LHI_RAILS_LEAVE, LHI_RAILS_STOP };

static inline void lhi_rails_count(uint64_t *what, uint64_t n)
{
    __atomic_fetch_add(what, n, __ATOMIC_RELAXED);
}

/* ---- rail_carry.c ---- */

/* The connection is proven: it is the rail, and the one before it is not. */
lh_status lhi_rail_begin(lhi_rails *rails, uint32_t peer, uint32_t rail, int fd,
                         const lhi_handshake *shake, int64_t answer_ns,
                         lh_error *err);
/* Closes it, whatever its state; what it had in hands goes over others. */
void lhi_rail_drop(lhi_rails *rails, uint32_t peer, uint32_t rail, int error);
/* Something may be read. */
void lhi_rail_read(lhi_rails *rails, uint32_t peer, uint32_t rail);
/* Writes what is to be written to a peer, over its rails that have room. */
void lhi_rail_push(lhi_rails *rails, uint32_t peer);
/* Says that this end is there, with what it has got. */
void lhi_rail_say(lhi_rails *rails, uint32_t peer, uint32_t rail);
/* Whether there is anything that a rail with room could take. */
bool lhi_rail_has_work(const lhi_rail_peer *peer, const lhi_rail *rail);

/* The run fails by this peer, or this rank; `why` begins after its name. */
void lhi_rails_give_up(lhi_rails *rails, uint32_t peer, const char *why);

/* ---- rail_door.c ---- */

/* Of a rank with a lower number; of another one, which dials itself, it only
 * sees whether it listens there. */
void lhi_rail_dial(lhi_rails *rails, uint32_t peer, uint32_t rail);
/* The connection of an attempt can be written, or read. */
void lhi_rail_greet(lhi_rails *rails, uint32_t peer, uint32_t rail);
/* A guest can be read; its fd is -1 once it is none any more. */
void lhi_rail_hear_guest(lhi_rails *rails, lhi_guest *guest);
void lhi_rail_drop_late(lhi_rails *rails, int64_t now_ns);

#endif
