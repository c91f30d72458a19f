/* SPDX-License-Identifier: Apache-2.0 */
/* A run that adapts, in virtual time (lh_adapt_play()).
 *
 * adapt_play.c: iterations one after the other, and what is decided after each.
 * play_versions.c: what runs from some step on.
 * play_spots.c: pipelines with hosts, and layers, in other places.
 * play_moves.c: hosts that exchange their places, layers that move. */
#ifndef LHI_PLAY_OWN_H
#define LHI_PLAY_OWN_H

#include "adapt/adapt_own.h"
#include "adapt/moving.h"
#include "base/arena.h"
#include "sim/draws.h"

/* Where hosts and layers were for some time, and the pipelines of all states
 * there. */
typedef struct lhi_spot {
    uint32_t *hosts;          /* of each place; NULL: as they began */
    uint32_t *numbers;        /* of each chunk's layers; NULL: as at first */
    lh_pipeline **pipelines;  /* per state, with the first numbers; NULL: not
                                 needed yet */
    lhi_jitter_draws **draws; /* likewise */
} lhi_spot;

typedef enum lhi_came {
    LHI_CAME_SWITCH,   /* or it is the first one */
    LHI_CAME_EXCHANGE, /* it differs from the one before in its spot alone */
    LHI_CAME_LAYERS    /* likewise */
} lhi_came;

/* What ran from some step on. */
typedef struct lhi_version {
    const char *name;
    lh_schedule *schedule;
    lh_data_path path;
    bool *links; /* mixed; else NULL */
    uint32_t spot;
    lhi_came came;
} lhi_version;

/* One iteration as it is measured. */
typedef struct lhi_played_iteration {
    bool is_known;
    int64_t ns;
    lh_seen seen;
    lh_seen_message *messages;
    lh_seen_pass *passes;
    lh_seen_collective *collectives;
} lhi_played_iteration;

struct lh_played {
    lhi_arena *mem;
    uint64_t n_steps;
    lh_played_step *steps;
    uint32_t n_versions, n_notices, room_notices;
    /* Room for one more than there are; each but the first led to one of the
     * others, in order. */
    lhi_version *versions;
    uint32_t n_switches, n_exchanges, n_layers;
    lh_played_switch *switches;
    lh_played_exchange *exchanges;
    lh_played_layers *layers;
    lh_played_notice *notices;
};

/* One run under way. */
typedef struct lhi_playing {
    const lh_course *course;
    lh_adapt_options adapt_options;
    const lh_jitter *jitter;
    bool exchange;
    const lh_layers *layers;
    int64_t layer_ns;
    lh_adapt *adapt;
    lh_monitor *monitor;
    uint32_t n_spots;
    lhi_spot *spots;
    lhi_played_iteration **known; /* per version, per state */
    uint32_t n_known;             /* versions that have room there */
    lhi_played_iteration drawn;   /* with jitter: the last one */
    uint64_t follow_at; /* the last version; UINT64_MAX: it is followed */
    uint32_t now;       /* the version that runs */
    lhi_moves_tried tried;
    lh_played *out;
} lhi_playing;

/* What messages do under a version. */
lh_sim_options lhi_play_sim(const lhi_playing *play,
                            const lhi_version *version);
/* One more that is like the one that runs. LH_OK: it is the last of
 * out->versions, and is not followed yet. */
lh_status lhi_play_add(lhi_playing *play, const char *name,
                       const lh_schedule *schedule, lh_data_path path,
                       const bool *links, uint32_t spot, lh_error *err);
/* Where hosts and layers are from then on; its pipelines are not made yet.
 * NULL: as they begin. */
lh_status lhi_spot_add(lhi_playing *play, const uint32_t *hosts,
                       const uint32_t *numbers, lh_error *err);
void lhi_spots_free(lhi_playing *play);
lh_status lhi_spot_need(lhi_playing *play, uint32_t spot, uint32_t state,
                        lh_error *err);

/* `pipeline`, which has the first numbers of layers, with those of the spot. */
lh_status lhi_spot_share(const lhi_playing *play, uint32_t spot,
                         const lh_pipeline *pipeline, lh_pipeline **out,
                         lh_error *err);

/* After a step: whether hosts or layers move, rather than what was decided.
 * *moves: a version was added. `estimated`: with the first numbers. */
lh_status lhi_play_moves(lhi_playing *play, uint64_t step,
                         const lh_pipeline *estimated,
                         const lh_decision *decision, bool *moves,
                         lh_error *err);

#endif
