/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates an adaptive run in virtual time (lh_adapt_emulate()).
 *
 * - emulation.c: iterations in sequence and the decision after each
 * - emulation_versions.c: the running version per step
 * - emulation_assignments.c: pipelines with hosts and layers reassigned
 * - emulation_migrations.c: host exchanges and layer migrations */
#ifndef LHI_RESILIENCE_ADAPT_EMULATION_INTERNAL_H
#define LHI_RESILIENCE_ADAPT_EMULATION_INTERNAL_H

#include "base/arena.h"
#include "resilience/adapt/adapt_internal.h"
#include "resilience/adapt/migration.h"
#include "schedule/simulator/jitter_samples.h"

/* An assignment of hosts and layers for part of the run, with all states'
 * pipelines under it. */
typedef struct lhi_emulation_assignment {
    uint32_t *hosts;        /* per place; NULL: the initial hosts */
    uint32_t *layer_counts; /* layers per chunk; NULL: the initial ones */
    /* per state, initial layers; NULL: not built yet */
    lh_pipeline **pipelines;
    lhi_jitter_sampler **samples; /* per state; NULL: not built yet */
} lhi_emulation_assignment;

/* A version's origin. */
typedef enum lhi_version_origin {
    LHI_ORIGIN_SWITCH,   /* or the initial version */
    LHI_ORIGIN_EXCHANGE, /* differs from its predecessor in hosts only */
    LHI_ORIGIN_LAYERS    /* differs from its predecessor in layers only */
} lhi_version_origin;

/* A configuration that runs from some step on. */
typedef struct lhi_emulation_version {
    const char *name;
    lh_schedule *schedule;
    lh_data_path path;
    bool *links; /* delegated links on the mixed path; else NULL */
    uint32_t assignment;
    lhi_version_origin origin;
} lhi_emulation_version;

/* One iteration's measurements. */
typedef struct lhi_emulated_iteration {
    bool is_known;
    int64_t ns;
    lh_observation observation;
    lh_observed_message *messages;
    lh_observed_pass *passes;
    lh_observed_collective *collectives;
} lhi_emulated_iteration;

/* A simulated adaptive run's result. */
struct lh_emulation {
    lhi_arena *mem;
    uint64_t n_steps;
    lh_emulated_step *steps;
    uint32_t n_versions;
    /* Arrays have capacity for one entry more. Each version but the first has
     * one switch, exchange or layer migration, in order. */
    lhi_emulation_version *versions;
    uint32_t n_switches, n_exchanges, n_layers;
    lh_emulated_switch *switches;
    lh_emulated_exchange *exchanges;
    lh_emulated_migration *layers;
};

/* Simulated run's state. */
typedef struct lhi_emulation_run {
    const lh_event_timeline *timeline;
    lh_adapt_options adapt_options;
    const lh_jitter *jitter;
    lhi_slow_hosts *slow;     /* NULL: hosts stay */
    double *pass_ns, *hop_ns; /* emulated measurements for `slow` */
    const lh_layers *layers;
    int64_t layer_ns;
    lh_adapt *adapt;
    lh_monitor *monitor;
    uint32_t n_events; /* monitor events so far */
    uint32_t n_assignments;
    lhi_emulation_assignment *assignments;
    lhi_emulated_iteration **cached; /* cached results per version and state */
    uint32_t n_cached;               /* number of versions in `cached` */
    lhi_emulated_iteration
        sampled;           /* with jitter: the last sampled iteration */
    uint64_t pending_step; /* step at which the last version starts; UINT64_MAX:
                            * none is pending */
    uint32_t running;      /* running version's index */
    lhi_migration_history migrations;
    lh_emulation *out;
} lhi_emulation_run;

/* Returns the simulator options for version v's data path. Delegated messages
 * (sent by helper threads through host memory) never block a pass, so send
 * queues are then unlimited. */
lh_sim_options lhi_emulation_sim_options(const lhi_emulation_run *play,
                                         const lhi_emulation_version *version);
/* Appends a version (schedule, data path, assignment number `spot` of hosts and
 * layers) called `name` to out->versions, to run later. Copies `schedule` and
 * `links`, the delegated links. */
lh_status lhi_emulation_add_version(lhi_emulation_run *play, const char *name,
                                    const lh_schedule *schedule,
                                    lh_data_path path, const bool *links,
                                    uint32_t spot, lh_error *err);
/* Appends an assignment of hosts and layers, which versions refer to by number:
 * `hosts` gives each place's host, `numbers` each chunk's layers;
 * NULL: the initial ones. Builds no pipelines yet. */
lh_status lhi_emulation_add_assignment(lhi_emulation_run *play,
                                       const uint32_t *hosts,
                                       const uint32_t *numbers, lh_error *err);
/* Frees all assignments (host per place, layers per chunk) and the pipelines
 * built for them. */
void lhi_emulation_free_assignments(lhi_emulation_run *play);
/* Builds the pipeline of assignment number `i` (hosts and layers) under state
 * `state` (an active event set), and its jitter samples, unless they exist. */
lh_status lhi_emulation_require_pipeline(lhi_emulation_run *play, uint32_t spot,
                                         uint32_t state, lh_error *err);

/* Copies `pipeline`, which has the initial layers per chunk, with the layers of
 * assignment number `spot` instead, into *out. */
lh_status lhi_emulation_assign_layers(const lhi_emulation_run *play,
                                      uint32_t spot,
                                      const lh_pipeline *pipeline,
                                      lh_pipeline **out, lh_error *err);

/* Computes the pass and message times that hosts and links would have in step
 * `step` under the timeline's events, and adds them to the search for slow
 * hosts, p->slow. */
lh_status lhi_emulation_measure_hosts(lhi_emulation_run *play, uint64_t step,
                                      lh_error *err);
/* Decides after step `step` whether a migration of hosts or layers is better
 * than schedule decision `d`. *moves: it is, and a version that runs later was
 * added. `estimated`: the monitor's pipeline with the initial layers per chunk.
 * */
lh_status lhi_emulation_find_migration(lhi_emulation_run *play, uint64_t step,
                                       const lh_pipeline *estimated,
                                       const lh_decision *decision, bool *moves,
                                       lh_error *err);

#endif
