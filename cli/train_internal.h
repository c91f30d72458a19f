/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the train command's parts:
 *
 * - cmd_train.c: options
 * - train_run.c: the run
 * - train_switches.c: schedule switches
 * - train_migrations.c: migration to other ranks or chunks
 * - train_data_paths.c: message data paths
 * - train_events.c: events that make elements slow
 * - train_adapt.c: the adaptive run's reports
 * - train_clock.c: wall time, and processors that other programs use
 * - train_hosts.c: the ranks of this host (--hosts)
 * - train_output.c: results
 * - train_report.c: results as an HTML page or an image
 * - train_memory.c: memory per rank
 * - train_restarts.c: restarts after a rank's loss */
#ifndef CLI_TRAIN_INTERNAL_H
#define CLI_TRAIN_INTERNAL_H

#include "data_paths.h"
#include "event_timeline_view.h"
#include "view.h"

#include <longhaul/experimental/engine.h>

enum { TRAIN_INPROC, TRAIN_LOCAL, TRAIN_UCX, TRAIN_TCP }; /* --transport */
enum { TRAIN_RANKS_ANY, TRAIN_RANKS_LOCAL };              /* --ranks */
enum { TRAIN_MEMORY_REPORT, TRAIN_MEMORY_ENFORCE };       /* --memory */
enum { TRAIN_MOST_RAILS = 8 };

extern const char *const train_devices[], *const train_transports[];

/* The train command's settings. */
typedef struct train_settings {
    const char *schedule, *schedule_at, *events, *inject, *trace, *html, *svg,
        *log, *profile_out, *path, *host_memory, *rails, *hosts, *layers,
        *layers_at, *places_at;
    int64_t staging_ns, moving_ns, silence_ns;
    uint32_t device, transport, ranks, replicas, steps, progress_every,
        sub_blocks, buffers, message_bytes, speed, memory, max_restarts;
    bool realtime, emulate_links, real_links, insecure, adapt;
    cli_model model;
    const char *data, *tokenizer, *checkpoint, *resume, *weights, *offload_to,
        *overrides, *validation_data;
    uint64_t warmup, decay_steps;
    double rate, min_rate, weight_decay, clip, validation, beta1, beta2,
        epsilon;
    bool delayed_update, fresh;
    uint32_t format, checkpoint_every, keep, validate_every, rate_decay,
        threads;
} train_settings;

/* Runs 'longhaul train'. */
lh_status train_run(cli *c);
/* Reports a failure before this rank has joined to the run's other ranks. */
void train_report_failure(const cli *c);

/* --rails: its parts, and the text that contains them, released with free(). */
typedef struct train_rails {
    char *text;
    const char *parts[TRAIN_MOST_RAILS];
    uint32_t n;
} train_rails;

/* Schedule switch from --schedule-at. */
typedef struct train_change {
    uint64_t step;
    cli_view view; /* its schedule and method */
} train_change;

/* Migrations from --layers-at and --places-at: one entry, and all by step. */
typedef struct train_migration {
    uint64_t step;
    uint32_t n, *numbers; /* chunks, or places */
} train_migration;

/* All migrations of one kind, by step. */
typedef struct train_migrations {
    train_migration *all;
    uint32_t n, n_proposed; /* all; passed on so far */
    uint32_t n_applied;     /* last one applied by the run; 0: none */
} train_migrations;

/* Wall time of a run with restarts, checkpoints and validation, and use of this
 * machine's processors meanwhile. */
typedef struct train_clock {
    int64_t begin_ns, elapsed_ns;
    bool has_machine;             /* busy_s and idle_s are known */
    double busy_s, idle_s, own_s; /* processor times at the begin */
    double others; /* mean number of processors that other programs used; NAN:
                    * unknown */
} train_clock;

/* All schedule switches, events and migrations of a run. */
typedef struct train_changes {
    train_clock clock;
    train_change *all; /* by step */
    uint32_t n;
    char *text;           /* text that contains the names */
    bool has_lost_output; /* standard output could not be written to */
    /* State during the run, on rank 0. */
    uint32_t n_proposed;
    uint64_t last_step; /* that asked for a schedule */
    lh_reschedule given;
    const char *current;               /* the current schedule's name */
    json_t *pending_log;               /* to be written to the log, or NULL */
    lh_event_timeline *event_timeline; /* --events; NULL: none */
    lh_host_placement *placement; /* --replicas, for the events; else NULL */
    const char *path;             /* data path: cli_data_path_name() */
    cli_paths paths;              /* during the run, or at its end */
    cli_model end;                /* data paths at the end */
    train_rails rails;
    /* Migrations. */
    train_migrations layers, hosts;
    uint32_t *first_layers; /* per chunk; NULL: unknown, or a chunk has none */
    uint64_t n_layers;
    uint32_t *transfer_vias;    /* of `given`, as in lh_reschedule */
    lh_layers *layer_rules;     /* for layer migration; else NULL */
    int64_t host_ns;            /* sending a host's state; 0: unknown */
    int64_t layer_ns;           /* sending a layer; 0: unknown */
    char why[64];               /* reason for `given` */
    json_t *pending_migrations; /* to be written to the log, or NULL */
    /* --adapt */
    const cli_view *initial_view; /* initial schedule */
    char name[256];               /* storage of `current` */
    json_t *pending_events,
        *pending_decisions; /* to be written to the log, or NULL */
} train_changes;

/* Reads the --schedule-at schedule changes for the view's pipeline and makes
 * their schedules. Zero-initialise *out; train_changes_fini() is valid at any
 * time. */
lh_status train_changes_read(cli *c, const cli_view *v, train_changes *out);
/* Checks that every schedule change can run on the executed pipeline without
 * deadlock. */
lh_status train_changes_check(cli *c, const cli_view *v,
                              const lh_exec_options *exec,
                              const train_changes *changes);
/* Returns the parts per W pass (--sub-blocks) for the run's first schedule: 1
 * if only a method in --schedule-at splits passes, otherwise the option's
 * number. */
uint32_t train_first_sub_blocks(const train_settings *s);
/* Returns the schedule switch or the migrations due by `step`, in memory of
 * `changes`; NULL: nothing new since the last call, because each is proposed
 * once. A resumed run starts with the last schedule due before it. */
const lh_reschedule *train_changes_get(train_changes *changes, uint64_t step);
/* Returns the last iteration's schedule; NULL: the initial one. */
const train_change *train_changes_find_last(const train_changes *changes,
                                            const lh_train_result *r);
/* Frees the schedule changes, migrations and events. */
void train_changes_fini(train_changes *changes);

/* --- --layers-at, --places-at ------------------------------------------- */

/* Reads the options that migrate layers or ranks (--layers-at, --places-at)
 * for the view's pipeline, for which `changes` was read. */
lh_status train_migrations_read(cli *c, const cli_view *v, const lh_plan *plan,
                                train_changes *changes);
/* Frees the layer and rank migrations read from the options. */
void train_migrations_fini(train_changes *changes);
/* Fills in *out with the layer and rank migrations due by `step`, which are
 * proposed to the run, and their durations; returns whether there are any. Each
 * migration is proposed once, even if the run rejects it. */
bool train_migrations_get(train_changes *changes, uint64_t step,
                          lh_reschedule *out);
/* Marks as applied the migrations that train_migrations_get() returned last, so
 * that later ones start from them. */
void train_migrations_mark_applied(train_changes *changes);
/* Returns a layer or rank migration as JSON; JSON null for NULL. NULL: out of
 * memory. */
json_t *train_migration_json(const lh_migration *moved);
/* Prints the migration before iteration `step`: layers or ranks, bytes and
 * duration. */
void train_migration_print(cli *c, uint64_t step, const lh_migration *moved);
/* Adds a table of all migrations and their durations to the report, if there
 * are any. */
lh_status train_migrations_report(cli *c, const lh_train_result *r,
                                  lh_report *report);
/* Builds the pipeline at a step, in `state` of the event timeline (active event
 * set), with the layer and rank migrations so far: *out, released by the
 * caller; NULL: equal to the run's pipeline `quiet`. */
lh_status train_pipeline_at(cli *c, const train_changes *changes,
                            const lh_pipeline *quiet, const lh_train_result *r,
                            uint64_t step, uint32_t state, lh_pipeline **out);

/* Returns how many entries of `changes` (schedule changes, sorted by step) the
 * run had applied by iteration `step`; the schedule of the last one was active.
 * */
uint32_t train_changes_count_applied(const train_changes *changes,
                                     const lh_train_result *r, uint64_t step);
/* Returns how many entries of `changes` (schedule changes, sorted by step) the
 * run had applied at its end. The last one may be in an iteration that the run
 * did not complete and does not report. */
uint32_t train_changes_count_final(const train_changes *changes,
                                   const lh_train_result *r);
uint64_t train_last_step(const lh_train_result *r); /* none: UINT64_MAX */

/* Reads the --events file for the view's pipeline into `changes`. Replaces
 * *own, which the view then uses, by the pipeline without active events, which
 * has a link for every event. */
lh_status train_events_read(cli *c, cli_view *v, train_changes *changes,
                            lh_pipeline **own);
/* Simulates each iteration under its events into *out (free with free()) and
 * sets the result's predictions to the medians. *out is NULL if there are no
 * events. */
lh_status train_events_predict(cli *c, const cli_view *v,
                               const train_changes *changes, lh_train_result *r,
                               int64_t **out);

/* --- --memory --- */

/* Returns predicted and actual memory per rank as a JSON array, empty if
 * nothing is trained. NULL: out of memory. `ran`: executed pipeline. */
json_t *train_memory_json(const lh_plan *plan, const lh_pipeline *ran,
                          const lh_train_result *r);
/* Prints predicted and actual memory per rank. */
void train_memory_print(cli *c, const lh_plan *plan, const lh_pipeline *ran,
                        const lh_train_result *r);

/* --- --path --- */

/* Reads the data paths (direct or delegated sends) before a schedule is built,
 * into *out. Replaces the view's pipeline by out->pipeline, if any, which has
 * the delegated messages' copies through host memory. */
lh_status train_paths_begin(cli *c, cli_view *v, cli_paths *out);
/* Sets the data paths in `model` (direct sends, or delegated ones through host
 * memory) for the executed pipeline `v`, and stores them in `changes` too. */
lh_status train_paths_read(cli *c, const cli_view *v, const cli_model *model,
                           train_changes *changes);
/* For an adaptive run: sets in `changes` each link's data path (direct or
 * delegated sends) in the last iteration, for simulating it; the result owns
 * the link list. */
lh_status train_paths_end(cli *c, const cli_view *v, const lh_train_result *r,
                          train_changes *changes);
/* Returns a data path's display name: "direct" if sends share a queue with the
 * passes; "delegated" if a helper thread sends through host memory. */
const char *train_path_name(cli *c, lh_data_path path);
/* Copies the run's data paths (direct or delegated sends) to the options `exec`
 * for building the execution plan. */
void train_paths_set(cli *c, const train_changes *changes,
                     lh_exec_options *exec);
/* Builds a pipeline in which delegated messages (sent by a helper thread) are
 * copied to and from host memory: *out, released by the caller. NULL: no
 * message is delegated. */
lh_status train_paths_add_copies(cli *c, const train_changes *changes,
                                 const lh_pipeline *pipeline,
                                 lh_pipeline **out);
/* Simulates a schedule's iteration with the run's data paths (direct or
 * delegated sends); *out is its makespan in ns. */
lh_status train_makespan(cli *c, const train_changes *changes,
                         const lh_pipeline *pipeline,
                         const lh_schedule *schedule, int64_t *out);
/* Simulates the view's schedule with the run's data paths (direct or delegated
 * sends), into the view. */
lh_status train_simulate(cli *c, const train_changes *changes, cli_view *view);

/* --- --adapt --- */

/* Returns the display name of `to`, the schedule to which a run has switched:
 * the method of view `began` for the library's fixed name of the initial
 * schedule, otherwise `to`. */
const char *train_schedule_name(const cli_view *began, const char *to);
/* Returns the display name of the schedule of the run's last iteration. */
const char *train_last_schedule_name(const cli_view *began,
                                     const lh_train_result *r);
/* Appends a notice `n` as JSON to one of two arrays: a detected change to
 * `noticed`, a decision to `decisions`. false: out of memory. */
bool train_notice_add(cli *c, const cli_view *began, const lh_adapt_event *n,
                      json_t *noticed, json_t *decisions);
/* Stores a notice (detected change or decision) for the log;
 * train_notices_log() adds the stored ones to a line. */
void train_changes_notice(cli *c, train_changes *changes,
                          const lh_adapt_event *n);
/* Adds the stored notices to a log line and removes them from the store. */
void train_notices_log(train_changes *changes, json_t *line);
/* Adds all notices of a run (detected changes and decisions) to the JSON
 * object `to`. */
lh_status train_notices_json(cli *c, const cli_view *began,
                             const lh_train_result *r, json_t *to);
/* Prints all notices of a run (detected changes and decisions). */
void train_notices_print(cli *c, const lh_train_result *r);
/* Adds all notices of a run (detected changes and decisions) to a report. */
lh_status train_notices_report(cli *c, const lh_train_result *r,
                               lh_report *report);
/* With events: restricts the result's predicted and measured times to the final
 * iterations, with the last schedule and the last events. */
lh_status train_adapt_predict(cli *c, const cli_view *v,
                              const train_changes *changes, lh_train_result *r);

/* Returns the median of n > 0 times; sorts `ns` in place. */
int64_t train_median(int64_t *ns, uint32_t n);

/* One iteration's properties for --log and --json. */
typedef struct train_iteration_context {
    const char *schedule; /* active schedule */
    const char *path;
    const lh_event_timeline *event_timeline;
    int64_t predicted_ns; /* under its events; 0: unknown */
} train_iteration_context;

/* Returns an iteration's processed tokens per second. */
double train_tokens_per_s(const lh_iteration *it);
/* Returns an iteration as JSON: step, time, loss and training statistics, with
 * the schedule, data path, slow links and predicted time in `at`. */
json_t *train_iteration_json(const lh_iteration *it,
                             const train_iteration_context *at);
/* Returns a schedule switch as JSON. `from`: the previous schedule; `path`:
 * data path, cli_data_path_name(); takes over the migration `moved`. */
json_t *train_switch_json(const lh_switch *what, const char *from,
                          const char *path, json_t *moved);

/* --log, open during the run. */
typedef struct train_log {
    int fd;
    const char *path;
    bool *failed; /* shared by all processes, as the first rank, which writes,
                   * may be another one. NULL: no log */
} train_log;

/* Opens a run's log for appending and stores it in *out. */
lh_status train_log_open(cli *c, const char *path, train_log *out);
/* Appends iteration `it`, with the stored changes, to the log as a line of
 * JSON. After a failed write prints the error once and stops logging. */
void train_log_add(train_log *log, const lh_iteration *it,
                   train_changes *changes);
/* Closes the run's log. Returns false after a failed write, which was
 * reported. */
bool train_log_close(train_log *log);

/* Writes and prints a run's requested results; does nothing in other ranks'
 * processes. `plan`: NULL for a pipeline. `last`: the final schedule and
 * events, simulated. `predicted_ns`: per iteration, NULL without events. */
lh_status train_write_results(cli *c, const cli_view *v, const cli_view *last,
                              const lh_plan *plan, const train_changes *changes,
                              const int64_t *predicted_ns,
                              const lh_train_result *r);

/* Returns the schedule's name in iteration `step`; `before`: the one before a
 * switch at this step. */
const char *train_schedule_name_at(const cli_view *v, const lh_train_result *r,
                                   uint64_t step, bool before);
/* Returns the data path in iteration `step`: the initial one, unless a schedule
 * switch changed it. */
const char *train_path_name_at(cli *c, const lh_train_result *r, uint64_t step);

/* Buffer size for a predicted iteration time and its source. */
enum { TRAIN_PREDICTION_TEXT = 240 };
/* Writes the predicted iteration time to `text`, for the cpu device with its
 * source and the sharing of processors. */
void train_prediction_text(cli *c, const lh_plan *plan,
                           const lh_train_result *r,
                           char text[TRAIN_PREDICTION_TEXT]);
/* Writes the measured iteration time and its difference from the prediction to
 * `text`. */
void train_measured_text(const lh_train_result *r,
                         char text[TRAIN_PREDICTION_TEXT]);

/* Writes the run's wall time to `text`. */
void train_elapsed_text(const train_clock *clock, const lh_train_result *r,
                        char text[TRAIN_PREDICTION_TEXT]);
/* Writes to `text` that other programs disturbed a run whose prediction is for
 * an idle machine; false: they did not, or that is unknown. */
bool train_load_text(const cli *c, const train_clock *clock,
                     const lh_train_result *r,
                     char text[TRAIN_PREDICTION_TEXT]);

/* Draws the iteration times: into the report or, with `report` NULL, as a
 * separate chart. predicted_ns: per iteration; NULL without events. */
lh_status train_draw_iterations(cli *c, const cli_view *began,
                                const lh_event_timeline *timeline,
                                const int64_t *predicted_ns,
                                const lh_train_result *r, lh_report *report);
/* Writes the HTML report: measured against predicted times, iterations and
 * switches. `began` and `v`: the initial and the final schedule; the other
 * parameters are those of train_write_results(). */
lh_status train_write_html(cli *c, const cli_view *began, const cli_view *v,
                           const lh_plan *plan, const train_changes *changes,
                           const int64_t *predicted_ns,
                           const lh_train_result *r);

/* Starts the run's clock. */
void train_clock_begin(train_clock *clock);
/* Stops the run's clock. */
void train_clock_end(train_clock *clock);
/* Checks whether other programs used processors that the run's ranks, all on
 * this machine, needed: more than a tenth of them. */
bool train_clock_is_disturbed(const train_clock *clock,
                              const lh_train_result *r);

/* Writes the number of the run's restarts to `text`; false: there were none. */
bool train_restarts_text(const lh_train_result *r,
                         char text[TRAIN_PREDICTION_TEXT]);
/* Returns the run's restarts as JSON; NULL: no memory. */
json_t *train_restarts_json(const lh_train_result *r);

/* Fails if a launcher has started several processes and the transport is the
 * default, by which each process would run the whole job. */
lh_status train_hosts_check_launcher(cli *c);
/* With --hosts: continues as each of this host's ranks in a child process, with
 * the variables that torchrun sets, and ends the parent process after them. */
lh_status train_hosts_start(cli *c);
/* Sets the variables of this host's first rank for the list `hosts` of --hosts,
 * so that this process can report an error in its place. False: no other host
 * runs ranks, or this host is not in the list. */
bool train_hosts_become_rank(const char *hosts);
/* Notes for the parent process that this rank joins the others. */
void train_hosts_note_joining(void);
/* Notes for the parent process that this rank has printed why it ends, or that
 * another rank does: it may still send the reason to other ranks. */
void train_hosts_note_failure(void);

#endif
