/* SPDX-License-Identifier: Apache-2.0 */
/* The train command's parts: cmd_train.c has what can be asked for, train_run.c
 * runs it, train_changes.c has the schedules that it goes on with,
 * train_moves.c what moves to other ranks or chunks, train_paths.c how messages
 * go, train_events.c what is slow meanwhile,
 * train_adapt.c what it notices of that, train_output.c says what came out,
 * train_memory.c what ranks held. */
#ifndef CLI_TRAIN_PARTS_H
#define CLI_TRAIN_PARTS_H

#include "course_view.h"
#include "paths.h"
#include "view.h"

#include <longhaul/engine.h>

enum { TRAIN_INPROC, TRAIN_LOCAL, TRAIN_UCX, TRAIN_TCP }; /* --transport */
enum { TRAIN_RANKS_ANY, TRAIN_RANKS_LOCAL };              /* --ranks */
enum { TRAIN_MEMORY_REPORT, TRAIN_MEMORY_ENFORCE };       /* --memory */
enum { TRAIN_MOST_RAILS = 8 };

extern const char *const train_devices[], *const train_transports[];

typedef struct train_settings {
    const char *schedule, *schedule_at, *events, *inject, *trace, *html, *svg,
        *log, *profile_out, *path, *host_memory, *rails, *layers, *layers_at,
        *places_at;
    int64_t staging_ns, moving_ns;
    uint32_t device, transport, ranks, replicas, steps, sub_blocks, buffers,
        message_bytes, speed, memory;
    bool realtime, emulate_links, real_links, insecure, adapt;
    cli_model model;
    const char *data, *tokenizer, *checkpoint, *resume, *weights, *offload_to;
    uint64_t warmup;
    double rate, min_rate, weight_decay, clip, validation;
    bool delayed_update;
    uint32_t format, checkpoint_every, keep, validate_every;
} train_settings;

lh_status train_run(cli *c);

/* --rails: its parts, and the text that they are in, released with free(). */
typedef struct train_rails {
    char *text;
    const char *parts[TRAIN_MOST_RAILS];
    uint32_t n;
} train_rails;

/* --schedule-at */
typedef struct train_change {
    uint64_t step;
    cli_view view; /* its schedule and method */
} train_change;

/* --layers-at, --places-at: one, and all by step. */
typedef struct train_move {
    uint64_t step;
    uint32_t n, *numbers; /* of chunks, or of places */
} train_move;

typedef struct train_moves {
    train_move *all;
    uint32_t n, n_given; /* all; that were given so far */
    uint32_t n_taken;    /* the last one that the run went on with; 0: none */
} train_moves;

typedef struct train_changes {
    train_change *all; /* by step */
    uint32_t n;
    char *text; /* that names are in */
    /* While the run goes on, where rank 0 is. */
    uint32_t n_given;
    lh_reschedule given;
    const char *current; /* name of what iterations follow */
    json_t *told;        /* what is still to be said in the log, or NULL */
    lh_course *course;   /* --events; NULL: nothing becomes slow */
    lh_places *places;   /* --replicas, of the course; else NULL */
    const char *path;    /* of messages: cli_path_of() */
    cli_paths paths;     /* of the run, or at its end */
    cli_model end;       /* how messages go then */
    train_rails rails;
    /* What moves. */
    train_moves layers, hosts;
    uint32_t *first_layers; /* of each chunk; NULL: not known, or not each has
                               one */
    uint64_t n_layers;
    uint32_t *vias;   /* of what is given: as lh_reschedule has them */
    lh_layers *rules; /* of these; else NULL */
    int64_t host_ns;  /* sending what a host keeps; 0: not said */
    int64_t layer_ns; /* likewise, of a layer */
    char why[64];     /* of what is given */
    json_t *moved;    /* still to be said in the log, or NULL */
    /* --adapt */
    const cli_view *began;       /* what the run began with */
    char name[256];              /* that `current` is in */
    json_t *noticed, *decisions; /* still to be said in the log, or NULL */
} train_changes;

/* Zero-initialised; train_changes_fini() at any stage. Made for the view's
 * pipeline; then checked on what is run. */
lh_status train_changes_read(cli *c, const cli_view *v, train_changes *out);
lh_status train_changes_check(cli *c, const cli_view *v,
                              const lh_exec_options *exec,
                              const train_changes *changes);
/* Of --sub-blocks, what the run's first schedule takes: all of it, unless that
 * is cut by none and a later one is. */
uint32_t train_first_sub_blocks(const train_settings *s);
/* What is new from `step` on; NULL: nothing. */
const lh_reschedule *train_changes_at(train_changes *changes, uint64_t step);
/* That the last iteration followed; NULL: the one that the run began with. */
const train_change *train_changes_last(const train_changes *changes,
                                       const lh_train_result *r);
void train_changes_fini(train_changes *changes);

/* --- --layers-at, --places-at ------------------------------------------- */

/* Of the view's pipeline, for which `changes` was made. */
lh_status train_moves_read(cli *c, const cli_view *v, const lh_plan *plan,
                           train_changes *changes);
void train_moves_fini(train_changes *changes);
/* Who is to have what else from `step` on, into *out, with what moving takes;
 * whether anything is. What was refused is not given again. */
bool train_moves_at(train_changes *changes, uint64_t step, lh_reschedule *out);
/* What was given last is so from now on. */
void train_moves_taken(train_changes *changes);
/* NULL is null; NULL: no memory. */
json_t *train_moved_json(const lh_moved *moved);
void train_moved_print(cli *c, uint64_t step, const lh_moved *moved);
/* What moved, and how long that took: a table, where anything did. */
lh_status train_moved_report(cli *c, const lh_train_result *r,
                             lh_report *report);
/* The pipeline of a step, in a state of the course, with what has moved by
 * then: *out, to be released; NULL: it is `quiet`, that of the run. */
lh_status train_pipeline_at(cli *c, const train_changes *changes,
                            const lh_pipeline *quiet, const lh_train_result *r,
                            uint64_t step, uint32_t state, lh_pipeline **out);

/* How far in `changes` the run had come with iteration `step`: so many of its
 * schedules, of which the last one counts. */
uint32_t train_changes_followed(const train_changes *changes,
                                const lh_train_result *r, uint64_t step);
/* The same of the last iteration: a run may end within the first one of the
 * next schedule, of which it then says nothing. */
uint32_t train_changes_at_end(const train_changes *changes,
                              const lh_train_result *r);
uint64_t train_last_step(const lh_train_result *r); /* none: UINT64_MAX */

/* --events: reads the file, for the pipeline that is run; *own is it then. */
lh_status train_events_read(cli *c, cli_view *v, train_changes *changes,
                            lh_pipeline **own);
/* What the simulator says of each iteration under its events, in *out, to be
 * released with free(); the result's predictions become medians of that. NULL
 * where there are no events. */
lh_status train_events_predict(cli *c, const cli_view *v,
                               const train_changes *changes, lh_train_result *r,
                               int64_t **out);

/* --- --memory --- */

/* Of each rank what it was predicted to hold and held; an array, empty where
 * nothing is trained. NULL: no memory. */
json_t *train_memory_json(const lh_plan *plan, const lh_train_result *r);
void train_memory_print(cli *c, const lh_plan *plan, const lh_train_result *r);

/* --- --path --- */

/* How messages go, into `model`, before a schedule is made for the view's
 * pipeline, which becomes the one with their copies; then for the pipeline that
 * is run, where `model` is how they would go otherwise. */
lh_status train_paths_begin(cli *c, cli_view *v, cli_paths *out);
lh_status train_paths_read(cli *c, const cli_view *v, const cli_model *model,
                           train_changes *changes);
/* What a run that adapts has come to; links are the result's. */
lh_status train_paths_end(cli *c, const cli_view *v, const lh_train_result *r,
                          train_changes *changes);
/* As people call it: direct where sends share a queue with the passes. */
const char *train_path_name(cli *c, lh_data_path path);
/* Into the options of a run. */
void train_paths_set(cli *c, const train_changes *changes,
                     lh_exec_options *exec);
/* The pipeline with the copies of messages: *out, to be released, or NULL where
 * there are none. */
lh_status train_paths_stage(cli *c, const train_changes *changes,
                            const lh_pipeline *pipeline, lh_pipeline **out);
/* An iteration, simulated as its messages go. */
lh_status train_makespan(cli *c, const train_changes *changes,
                         const lh_pipeline *pipeline,
                         const lh_schedule *schedule, int64_t *out);
lh_status train_simulate(cli *c, const train_changes *changes, cli_view *view);

/* --- --adapt --- */

/* As people call the schedule of that name that a run has switched to. */
const char *train_name(const cli_view *began, const char *to);
/* Of the schedule that the last iteration followed. */
const char *train_last_name(const cli_view *began, const lh_train_result *r);
/* Adds a notice to one of two arrays. */
bool train_notice_add(cli *c, const cli_view *began, const lh_notice *n,
                      json_t *noticed, json_t *decisions);
/* Keeps it for the log; the line of which gets what was kept. */
void train_changes_notice(cli *c, train_changes *changes, const lh_notice *n);
void train_notices_log(train_changes *changes, json_t *line);
/* All of a run, as keys of its JSON; as lines. */
lh_status train_notices_json(cli *c, const cli_view *began,
                             const lh_train_result *r, json_t *to);
void train_notices_print(cli *c, const lh_train_result *r);
lh_status train_notices_report(cli *c, const lh_train_result *r,
                               lh_report *report);
/* With events: the result's prediction, and its times, become those of the
 * iterations at its end that had the same schedule and events. */
lh_status train_adapt_predict(cli *c, const cli_view *v,
                              const train_changes *changes, lh_train_result *r);

/* Sorts them; n > 0. */
int64_t train_median(int64_t *ns, uint32_t n);

/* Of one iteration, as --log and --json have it. */
typedef struct train_moment {
    const char *schedule; /* that it followed */
    const char *path;
    const lh_course *course;
    int64_t predicted_ns; /* under its events; 0: not said */
} train_moment;

double train_tokens_per_s(const lh_iteration *it);
json_t *train_iteration_json(const lh_iteration *it, const train_moment *at);
/* `from`: the schedule before; `path`: of messages, cli_path_of(); `moved` is
 * taken over. */
json_t *train_switch_json(const lh_switch *what, const char *from,
                          const char *path, json_t *moved);

/* --log, open for the length of a run. */
typedef struct train_log {
    int fd;
    const char *path;
    bool *failed; /* of all processes: the first rank, which writes, may be
                     another one. NULL: there is no log */
    void (*old_pipe)(int); /* what SIGPIPE did before */
} train_log;

lh_status train_log_open(cli *c, const char *path, train_log *out);
/* What cannot be written is said once, and then no more is tried. */
void train_log_add(train_log *log, const lh_iteration *it,
                   train_changes *changes);
/* False: not all of it was written, which has been said. */
bool train_log_close(train_log *log);

/* Writes and prints what was asked for; nothing where another process does.
 * `plan`: NULL of a pipeline. `last`: simulated, of the schedule and the events
 * that the run ended with. `predicted_ns`: per iteration, NULL without events.
 */
lh_status train_put_results(cli *c, const cli_view *v, const cli_view *last,
                            const lh_plan *plan, const train_changes *changes,
                            const int64_t *predicted_ns,
                            const lh_train_result *r);

#endif
