/* SPDX-License-Identifier: Apache-2.0 */
/* --events: iterations under what becomes slow, as simulate and train have
 * them. */
#ifndef CLI_COURSE_VIEW_H
#define CLI_COURSE_VIEW_H

#include "view.h"
#include "wrap.h"

#include <longhaul/adapt.h>
#include <longhaul/delegate.h>
#include <longhaul/events.h>
#include <longhaul/jitter.h>
#include <longhaul/layers.h>
#include <longhaul/places.h>
#include <longhaul/plan.h>

/* A row of an option table; `member` of the settings is a const char *. */
#define CLI_EVENTS_ROW(settings, member, says)                                 \
    {                                                                          \
        .name = "events", .type = CLI_TEXT, .at = offsetof(settings, member),  \
        .arg = "FILE", .help = says, .words = CLI_WORDS_FILES                  \
    }

/* The same; uint32_t. */
#define CLI_REPLICAS_ROW(settings, member, says)                               \
    {                                                                          \
        .name = "replicas", .type = CLI_COUNT,                                 \
        .at = offsetof(settings, member), .arg = "N", .least = 1,              \
        .most = LH_MAX_HOSTS,                                                  \
        .help =                                                                \
            says " Device d of replica r is on host r x devices + d, and "     \
                 "events are of hosts: h0-h4 is the link between two, and "    \
                 "a slow one that carries data-parallel communication "        \
                 "makes that slow."                                            \
    }

/* Reads the events of the file at `path` for a pipeline that is played `speed`
 * times as fast; `places` NULL: of devices, not of hosts. */
lh_status cli_course_read(cli *c, const char *path, const lh_pipeline *pipeline,
                          uint32_t speed, uint32_t restart,
                          const lh_places *places, lh_course **out);

/* ["2-3", "device 1"]: what is slow in a step; NULL: no memory. `course` NULL:
 * nothing is. */
json_t *cli_slow_json(const lh_course *course, uint64_t step);
/* The same for people: "2-3, device 1"; "nothing". */
#define CLI_SLOW_TEXT 48
char *cli_slow_text(const lh_course *course, uint32_t state, char *text);

/* What is slow in iterations first to first + n - 1, one span after the other,
 * as a picture of them takes it (course_picture.c). Zero-initialise;
 * cli_spans_fini() at any stage. */
typedef struct cli_spans {
    uint32_t n;
    lh_report_span *all;
    struct {
        char text[CLI_SLOW_TEXT];
    } * names;
} cli_spans;
lh_status cli_spans_find(cli *c, const lh_course *course, uint64_t first,
                         uint64_t n, cli_spans *out);
void cli_spans_fini(cli_spans *spans);
/* Writes the picture. */
lh_status cli_write_course(cli *c, const lh_report_course *course,
                           const char *path);

/* What sends do: "direct", they share a queue with a device's passes;
 * "delegated", passes never wait for them. */
const char *cli_path_of(const cli_model *model);

/* --- simulate ---------------------------------------------------------------
 */

typedef struct cli_play {
    const char *events, *log, *html, *svg;
    uint32_t steps;
    bool adapt, same_sums;
    uint32_t replicas;         /* events are of their hosts; 0: of devices */
    const char *layers;        /* of each chunk; NULL: they stay */
    int64_t moving_ns;         /* of what a host keeps; 0: hosts stay */
    uint32_t restart;          /* lh_course_options.restart_steps */
    int64_t staging_ns;        /* a message's copy on the delegated path */
    const lh_delegation *path; /* that of the run; NULL: none is given */
    const lh_jitter *jitter;   /* NULL: none */
} cli_play;

/* Iterations 0 to steps - 1 of the view's schedule, as text or JSON. `after_ns`
 * follows the pipeline in each. */
lh_status cli_play_run(cli *c, const cli_play *play, const cli_view *view,
                       const cli_model *model, int64_t after_ns);

/* What moves (course_moves.c). */
typedef enum cli_moved {
    CLI_MOVED_HOSTS,
    CLI_MOVED_LAYERS,
    CLI_N_MOVED
} cli_moved;

/* Of --replicas, 0: without; a plan, NULL: none, has some of its own. */
lh_status cli_check_replicas(cli *c, uint32_t replicas, const lh_plan *plan);
lh_status cli_places_make(cli *c, const cli_play *play,
                          const lh_pipeline *pipeline, lh_places **out);
/* Of --layers; *layer_ns: what moving one takes. */
lh_status cli_layers_make(cli *c, const cli_play *play,
                          const lh_pipeline *pipeline, lh_layers **out,
                          int64_t *layer_ns);
/* All that moved in a run, NULL: no memory; what did before a step, NULL:
 * nothing. `played` may be NULL. */
json_t *cli_moved_json(const lh_played *played, cli_moved what,
                       int64_t after_ns);
json_t *cli_moved_at_json(const lh_played *played, cli_moved what,
                          uint64_t step, int64_t after_ns);
/* The first `most` as rows of a table, and how many there are; as marks, which
 * may be NULL; to the terminal. */
uint32_t cli_moved_fill(const lh_played *played, cli_moved what,
                        int64_t after_ns, uint32_t most, cli_table *t);
uint32_t cli_moved_mark(const lh_played *played, cli_moved what,
                        lh_report_mark *marks);
const char *cli_moved_title(cli_moved what);
void cli_moved_print(cli *c, const lh_played *played, cli_moved what,
                     int64_t after_ns);

#endif
