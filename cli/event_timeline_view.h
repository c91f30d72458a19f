/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --events for simulate and train: iterations with elements that
 * become slow. */
#ifndef CLI_EVENT_TIMELINE_VIEW_H
#define CLI_EVENT_TIMELINE_VIEW_H

#include "view.h"
#include "wrap.h"

#include <longhaul/experimental/adapt.h>
#include <longhaul/experimental/delegate.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/host_placement.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/layers.h>
#include <longhaul/experimental/plan.h>

/* Option row; `member` in the settings is a const char *. */
#define CLI_EVENTS_ROW(settings, member, says)                                 \
    {                                                                          \
        .name = "events", .type = CLI_TEXT, .at = offsetof(settings, member),  \
        .arg = "FILE", .help = says, .words = CLI_WORDS_FILES                  \
    }

/* Option row for --replicas; uint32_t. */
#define CLI_REPLICAS_ROW(settings, member, says)                               \
    {                                                                          \
        .name = "replicas", .type = CLI_COUNT,                                 \
        .at = offsetof(settings, member), .arg = "N", .least = 1,              \
        .most = LH_MAX_HOSTS,                                                  \
        .help = says " Device d of replica r is on host r x devices + d, and " \
                     "events refer to hosts: h0-h4 is the link between hosts " \
                     "0 and 4; a slow link also slows the data-parallel "      \
                     "communication that it carries."                          \
    }

/* Reads the events from `path` for a pipeline that runs `speed` times faster;
 * `restart`: steps that a failure costs. `places` NULL: events refer to
 * devices, not hosts. */
lh_status cli_event_timeline_read(cli *c, const char *path,
                                  const lh_pipeline *pipeline, uint32_t speed,
                                  uint32_t restart,
                                  const lh_host_placement *places,
                                  lh_event_timeline **out);

/* Returns the links and devices that are slow in a step as JSON, ["2-3",
 * "device 1"]; NULL: out of memory. `timeline` NULL: none. */
json_t *cli_slow_json(const lh_event_timeline *timeline, uint64_t step);
/* Formats the same for people: "2-3, device 1"; "nothing". */
#define CLI_SLOW_TEXT 48
/* Formats the links and devices that are slow in state number `state` of the
 * event timeline (active event set) into `text`, which it returns. */
char *cli_slow_text(const lh_event_timeline *timeline, uint32_t state,
                    char *text);

/* Spans of iterations first to first + n - 1 with equal slow elements, for the
 * chart (event_timeline_chart.c). Zero-initialise; cli_slow_spans_fini() is
 * valid at any time. */
typedef struct cli_slow_spans {
    uint32_t n;
    lh_report_span *all;
    struct {
        char text[CLI_SLOW_TEXT];
    } * names;
} cli_slow_spans;
/* Finds the ranges among n iterations from `first` on in which the same links
 * and devices are slow, for the chart. */
lh_status cli_find_slow_spans(cli *c, const lh_event_timeline *timeline,
                              uint64_t first, uint64_t n, cli_slow_spans *out);
/* Frees the ranges of iterations with slow links or devices. */
void cli_slow_spans_fini(cli_slow_spans *spans);
/* Writes the iteration time chart to `path`. */
lh_status cli_write_event_timeline(cli *c,
                                   const lh_report_iterations *iterations,
                                   const char *path);

/* Returns the data path: "direct" (sends share a queue with a device's passes)
 * or "delegated" (passes never wait for sends). */
const char *cli_data_path_name(const cli_model *model);

/* --- simulate ----------------------------------------------------------- */

/* Options for simulate --events. */
typedef struct cli_event_simulation {
    const char *events, *log, *html, *svg;
    uint32_t steps;
    bool adapt, same_sums;
    uint32_t replicas;         /* hosts that events refer to; 0: devices */
    const char *layers;        /* per chunk; NULL: layers stay */
    int64_t migration_ns;      /* sending a host's state; 0: hosts stay */
    uint32_t restart;          /* lh_event_timeline_options.restart_steps */
    int64_t staging_ns;        /* copying a message on the delegated path */
    const lh_delegation *path; /* the run's path; NULL: not given */
    const lh_jitter *jitter;   /* NULL: none */
} cli_event_simulation;

/* Simulates iterations 0 to steps - 1 under the events, in the view's schedule,
 * and prints text or JSON. after_ns, the steps' time after the pipeline, is
 * added to each iteration. */
lh_status cli_event_simulation_run(cli *c, const cli_event_simulation *play,
                                   const cli_view *view, const cli_model *model,
                                   int64_t after_ns);

/* Migrated objects (event_timeline_migrations.c). */
typedef enum cli_migration_kind {
    CLI_MIGRATION_HOSTS,
    CLI_MIGRATION_LAYERS,
    CLI_N_MIGRATION_KINDS
} cli_migration_kind;

/* Fails with a usage error if --replicas (`replicas`; 0: not given) is given
 * with a plan, which has its own replica count. `plan` NULL: none. */
lh_status cli_check_replicas(cli *c, uint32_t replicas, const lh_plan *plan);
/* Builds the model of hosts that exchange places, for the pipeline and as many
 * replicas as --replicas gives. */
lh_status cli_placement_build(cli *c, const cli_event_simulation *play,
                              const lh_pipeline *pipeline,
                              lh_host_placement **out);
/* Builds the model of pipelines with other layers per chunk from --layers;
 * *layer_ns: duration of migrating one layer. */
lh_status cli_layers_build(cli *c, const cli_event_simulation *play,
                           const lh_pipeline *pipeline, lh_layers **out,
                           int64_t *layer_ns);
/* Returns all migrations of kind `what` (host exchanges or layer migrations) in
 * an emulated run as a JSON list; NULL: out of memory. `emulation` may be NULL.
 * after_ns, the time after the pipeline, is added to iteration times. */
json_t *cli_migrations_json(const lh_emulation *emulation,
                            cli_migration_kind what, int64_t after_ns);
/* Returns the migrations of kind `what` (host exchanges or layer migrations)
 * before step `step` as JSON; NULL: none, or out of memory. after_ns is added
 * to iteration times. */
json_t *cli_migration_at_json(const lh_emulation *emulation,
                              cli_migration_kind what, uint64_t step,
                              int64_t after_ns);
/* Adds at most `most` migrations of kind `what` (host exchanges or layer
 * migrations) to a table, a row each; returns the number of all. `emulation`
 * may be NULL; after_ns is added to iteration times. */
uint32_t cli_migrations_fill_table(const lh_emulation *emulation,
                                   cli_migration_kind what, int64_t after_ns,
                                   uint32_t most, cli_table *t);
/* Adds the migrations of kind `what` (host exchanges or layer migrations) to
 * the chart as marks, unless `marks` is NULL; returns their number. */
uint32_t cli_migrations_add_marks(const lh_emulation *emulation,
                                  cli_migration_kind what,
                                  lh_report_mark *marks);
/* Returns the table title for a kind of migration: host exchange, or layer
 * migration. */
const char *cli_migration_title(cli_migration_kind what);
/* Prints the migrations of kind `what` (host exchanges or layer migrations) in
 * an emulated run. after_ns, the time after the pipeline, is added to iteration
 * times. */
void cli_migrations_print(cli *c, const lh_emulation *emulation,
                          cli_migration_kind what, int64_t after_ns);

#endif
