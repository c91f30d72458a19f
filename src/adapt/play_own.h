/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates an adaptive run in virtual time (lh_adapt_emulate()).
 *
 * - emulation.c: iterations in sequence and the decision after each
 * - emulation_versions.c: the running version per step
 * - emulation_assignments.c: pipelines with hosts and layers reassigned
 * - emulation_migrations.c: host exchanges and layer migrations */
#ifndef LHI_PLAY_OWN_H
#define LHI_PLAY_OWN_H

#include "adapt/adapt_own.h"
#include "adapt/moving.h"
#include "base/arena.h"
#include "sim/draws.h"

/* An assignment of hosts and layers for part of the run, with the pipelines of
 * all states under it. */
typedef struct lhi_spot {
    uint32_t *hosts;          /* per place; NULL: the initial hosts */
    uint32_t *numbers;        /* layers per chunk; NULL: the initial ones */
    /* per state, initial layers; NULL: not built yet */
    lh_pipeline **pipelines;
    lhi_jitter_draws **draws; /* per state; NULL: not built yet */
} lhi_spot;

/* A version's origin. */
typedef enum lhi_came {
    LHI_CAME_SWITCH,   /* or the initial version */
    LHI_CAME_EXCHANGE, /* differs from its predecessor in hosts only */
    LHI_CAME_LAYERS    /* differs from its predecessor in layers only */
} lhi_came;

/* A configuration that runs from some step on. */
typedef struct lhi_version {
    const char *name;
    lh_schedule *schedule;
    lh_data_path path;
    bool *links; /* delegated links on the mixed path; else NULL */
    uint32_t spot;
    lhi_came came;
} lhi_version;

/* One iteration's measurements. */
typedef struct lhi_played_iteration {
    bool is_known;
    int64_t ns;
    lh_seen seen;
    lh_seen_message *messages;
    lh_seen_pass *passes;
    lh_seen_collective *collectives;
} lhi_played_iteration;

/* A simulated adaptive run's result. */
struct lh_played {
    lhi_arena *mem;
    uint64_t n_steps;
    lh_played_step *steps;
    uint32_t n_versions, n_notices, room_notices;
    /* Arrays have capacity for one entry more. Each version but the first has
     * one switch, exchange or layer migration, in order. */
    lhi_version *versions;
    uint32_t n_switches, n_exchanges, n_layers;
    lh_played_switch *switches;
    lh_played_exchange *exchanges;
    lh_played_layers *layers;
    lh_played_notice *notices;
};

/* Simulated run's state. */
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
    lhi_played_iteration **known; /* cached results per version and state */
    uint32_t n_known;             /* number of versions in `cached` */
    lhi_played_iteration drawn;   /* with jitter: the last sampled iteration */
    uint64_t follow_at; /* step at which the last version starts; UINT64_MAX:
                         * none is pending */
    uint32_t now;       /* running version's index */
    lhi_moves_tried tried;
    lh_played *out;
} lhi_playing;

/* Returns the simulator options for a version's data path. */
lh_sim_options lhi_play_sim(const lhi_playing *play,
                            const lhi_version *version);
/* Appends a version to out->versions; `schedule` and `links` are copied. On
 * LH_OK it is pending. */
lh_status lhi_play_add(lhi_playing *play, const char *name,
                       const lh_schedule *schedule, lh_data_path path,
                       const bool *links, uint32_t spot, lh_error *err);
/* Adds an assignment; its pipelines are built on demand. NULL: the initial
 * hosts or layers per chunk. */
lh_status lhi_spot_add(lhi_playing *play, const uint32_t *hosts,
                       const uint32_t *numbers, lh_error *err);
/* Frees all assignments and their pipelines. */
void lhi_spots_free(lhi_playing *play);
/* Builds an assignment's pipeline, and its jitter samples, for a state if
 * missing. */
lh_status lhi_spot_need(lhi_playing *play, uint32_t spot, uint32_t state,
                        lh_error *err);

/* Copies `pipeline`, which has the initial layers per chunk, with the layers
 * per chunk in the assignment. */
lh_status lhi_spot_share(const lhi_playing *play, uint32_t spot,
                         const lh_pipeline *pipeline, lh_pipeline **out,
                         lh_error *err);

/* Decides after a step whether hosts or layers migrate in place of the schedule
 * decision. *moves: a version was added. `estimated`: with the initial layers
 * per chunk. */
lh_status lhi_play_moves(lhi_playing *play, uint64_t step,
                         const lh_pipeline *estimated,
                         const lh_decision *decision, bool *moves,
                         lh_error *err);

#endif
