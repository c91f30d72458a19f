/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a plan: builds the options and handles the callbacks during the run. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "link_override.h"
#include "train_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- during the run ----------------------------------------------------- */

/* A run's progress. */
typedef struct train_progress {
    bool has_begun;
    uint64_t first_step;
    uint64_t n_iterations; /* without repeated ones */
    double loss;           /* of the last one; NAN: nothing is trained */
    bool has_lost_output;  /* standard output could not be written to */
} train_progress;

/* Context of the run's callbacks. */
typedef struct watch {
    cli *c;
    train_log log;
    uint32_t steps;
    train_changes *changes;
    /* Shared by all processes, as the first rank may be another one; NULL: no
     * memory. */
    train_progress *progress;
    pid_t process; /* the process that handles signals */
} run_context;

/* Capacity for the text on completed iterations, in bytes. */
enum { PROGRESS_TEXT = 100 };

/* Formats the number of iterations that a failed run has completed into `out`,
 * as an addition to its error message; "": none is known. */
static void format_completed(const train_progress *progress,
                             char out[PROGRESS_TEXT])
{
    *out = '\0';
    if (!progress || !progress->n_iterations)
        return;
    int n = snprintf(out, PROGRESS_TEXT, "; %" PRIu64 " iteration%s completed",
                     progress->n_iterations,
                     progress->n_iterations == 1 ? " was" : "s were");
    if (isfinite(progress->loss))
        snprintf(out + n, PROGRESS_TEXT - (size_t)n,
                 ", the last with loss %.4f", progress->loss);
}

/* Returns how the run must stop after the user's interrupts so far: 0 not at
 * all, 1 after the iteration, 2 at once (callback). */
static int get_stop_request(void *of)
{
    run_context *w = of;
    /* A process-group signal reaches every process; ranks started by this
     * process get the stop request from here. */
    if (cli_interrupts() == 0 || getpid() != w->process)
        return LH_STOP_NO;
    return cli_interrupts() > 1 ? LH_STOP_NOW : LH_STOP_AFTER;
}

/* Prints a progress line on standard output. The first failure is reported and
 * ends the output, as the training, which may have run for days, continues. */
static void put_progress(run_context *w, const char *line)
{
    if ((w->progress && w->progress->has_lost_output) ||
        cli_put_now(w->c, line))
        return;
    cli_print_stderr("cannot write to standard output: %s; no more progress is "
                     "printed, the run continues",
                     strerror(errno));
    if (w->progress)
        w->progress->has_lost_output = true;
}

/* Shows the progress after a completed iteration and adds the iteration to the
 * log (callback). */
static void show_iteration(void *of, const lh_iteration *it)
{
    run_context *w = of;
    const train_settings *s = w->c->settings;
    char time[CLI_TIME_TEXT], line[100];
    if (w->progress) {
        if (!w->progress->has_begun)
            w->progress->first_step = it->step;
        w->progress->has_begun = true;
        w->progress->n_iterations = it->step - w->progress->first_step + 1;
        w->progress->loss = it->loss;
    }
    cli_time_text(it->ns, time);
    if (isfinite(it->loss))
        snprintf(line, sizeof line,
                 "step %" PRIu64 " of %" PRIu32 ": loss %.4f, %.0f tokens/s",
                 it->step + 1, w->steps, it->loss, train_tokens_per_s(it));
    else
        snprintf(line, sizeof line, "iteration %" PRIu64 " of %" PRIu32 ": %s",
                 it->step + 1, w->steps, time);
    const bool is_due =
        s->progress_every && (it->step + 1) % s->progress_every == 0;
    const bool is_asked = cli_is_given(w->c, "progress") && !w->c->common.json;
    if (isatty(STDERR_FILENO))
        cli_progress(w->c, "%s", line);
    if (is_due && is_asked)
        put_progress(w, line);
    else if (is_due && !isatty(STDERR_FILENO))
        cli_note(w->c, "%s", line);
    train_log_add(&w->log, it, w->changes);
}

/* Returns the schedule switch, or layer or rank migration, that the options
 * demand from `step` on; NULL: none (callback). */
static const lh_reschedule *next_schedule(void *of, uint64_t step)
{
    run_context *w = of;
    return train_changes_get(w->changes, step);
}

/* Stores a completed layer or rank migration as JSON until its log entry is
 * written (callback). */
static void print_migration(void *of, const lh_migration *what)
{
    run_context *w = of;
    json_decref(w->changes->pending_migrations);
    w->changes->pending_migrations = train_migration_json(what);
}

/* Stores a completed or refused switch, with its migrations, as JSON until its
 * log entry is written (callback). */
static void show_switch(void *of, const lh_switch *what)
{
    run_context *w = of;
    train_changes *changes = w->changes;
    lh_switch shown = *what;
    shown.to = train_schedule_name(changes->initial_view, what->to);
    json_decref(changes->pending_log);
    changes->pending_log = train_switch_json(
        &shown, changes->current, train_path_name(w->c, what->path),
        changes->pending_migrations ? changes->pending_migrations
                                    : json_null());
    changes->pending_migrations = NULL;
    if (what->refused) {
        cli_note(w->c, "iteration %" PRIu64 " continues with %s: %s: %s",
                 what->step, changes->current, shown.to, what->refused);
        return;
    }
    train_migrations_mark_applied(changes);
    snprintf(changes->name, sizeof changes->name, "%s", shown.to);
    changes->current = changes->name;
    changes->path = train_path_name(w->c, what->path);
}

/* Prints a detected change or a decision (callback). */
static void show_notice(void *of, const lh_adapt_event *what)
{
    run_context *w = of;
    train_changes_notice(w->c, w->changes, what);
}

/* Prints rank failure message `why` at once, because mpirun ends the other
 * processes within a second (callback). */
static void show_failure(void *of, const char *why)
{
    run_context *w = of;
    char completed[PROGRESS_TEXT];
    format_completed(w->progress, completed);
    cli_progress_end();
    if (why)
        cli_print_stderr("%s%s", why, completed);
    w->c->error_printed = true;
    train_hosts_note_failure();
}

/* Prints the runtime's note `text` for the user (callback). */
static void show_remark(void *of, const char *text)
{
    const run_context *w = of;
    cli_note(w->c, "%s", text);
}

/* Notes that this rank's further failures reach the other ranks (callback). */
static void note_joining(void *of)
{
    const run_context *w = of;
    w->c->joins_ranks = true;
    train_hosts_note_joining();
}

/* Fills in the options of the model's training from the command line, into `m`
 * (data, checkpoints, devices) and `how` (optimizer). */
static lh_status read_model_options(cli *c, lh_train_model *m,
                                    lh_train_optimizer *how)
{
    const train_settings *s = c->settings;
    *m = lh_train_model_defaults();
    m->seed = c->common.seed;
    m->data = s->data;
    static const uint32_t token_bytes[] = {0, 2, 4, LH_TOKEN_BYTES_INDEXED};
    m->token_bytes = token_bytes[s->format];
    m->validation_data = s->validation_data;
    m->threads = s->threads;
    m->tokenizer = s->tokenizer;
    m->validate_every = s->validate_every;
    /* Host memory, unless a folder is given. */
    m->offload_folder = s->host_memory && !cli_is_given(c, "offload-to")
                            ? "/dev/shm"
                            : s->offload_to;
    m->checkpoint = s->checkpoint;
    m->checkpoint_every = s->checkpoint_every;
    m->keep = s->keep;
    m->resume = s->resume;
    m->weights = s->weights;
    m->emulate_links = s->emulate_links || s->inject || s->events;
    m->overrides = s->overrides;
    m->fresh = s->fresh;
    if (cli_is_given(c, "rate"))
        m->rate = s->rate;
    if (cli_is_given(c, "min-rate"))
        m->min_rate = s->min_rate;
    if (cli_is_given(c, "warmup"))
        m->warmup = s->warmup;
    if (cli_is_given(c, "weight-decay"))
        m->weight_decay = s->weight_decay;
    if (cli_is_given(c, "clip"))
        m->clip = s->clip;
    *how = lh_train_optimizer_defaults();
    m->optimizer = how;
    if (cli_is_given(c, "beta1"))
        how->beta1 = s->beta1;
    if (cli_is_given(c, "beta2"))
        how->beta2 = s->beta2;
    if (cli_is_given(c, "epsilon"))
        how->epsilon = s->epsilon;
    if (cli_is_given(c, "rate-decay"))
        how->rate_decay = s->rate_decay;
    if (cli_is_given(c, "decay-steps"))
        how->decay_steps = s->decay_steps;
    if (!(s->beta1 < 1) || !(s->beta2 < 1))
        return cli_usage(c, "--beta1 and --beta2 must be at least 0 and less "
                            "than 1");
    if (!(s->epsilon > 0))
        return cli_usage(c, "--epsilon must be above 0");
    m->delayed_update = s->delayed_update;
    m->validation = s->validation;
    return m->validation < 1
               ? LH_OK
               : cli_usage(c,
                           "--validation must be at least 0 and less than 1");
}

/* Fails with a usage error if --device cpu is given without a plan or without
 * --data. */
static lh_status check_cpu(cli *c, const lh_plan *plan)
{
    const train_settings *s = c->settings;
    if (!plan)
        return cli_usage(c, "--device cpu requires a plan; a pipeline has no "
                            "model to train");
    if (!s->data)
        return cli_usage(c, "--device cpu requires --data");
    return LH_OK;
}

/* Runs a plan: trains its model on this machine's processors (--device cpu), or
 * runs it with emulated passes. */
static lh_status train_plan(cli *c, const cli_view *v, const lh_plan *plan,
                            const lh_exec_options *exec,
                            const lh_train_options *run, lh_train_result **out)
{
    const train_settings *s = c->settings;
    bool cpu = s->device == LH_TRAIN_CPU;
    lh_train_model model;
    lh_train_optimizer optimizer;
    if (cpu)
        CLI_TRY(read_model_options(c, &model, &optimizer));
    const lh_train_plan_options with = {.size = sizeof with,
                                        .device = (lh_train_device)s->device,
                                        .pipeline = v->pipeline,
                                        .schedule = v->schedule,
                                        .exec = exec,
                                        .run = run,
                                        .model = cpu ? &model : NULL};
    return lh_train_plan(plan, &with, out, &c->err);
}

/* Runs a pipeline with emulated passes; *out is the caller's result. */
static lh_status train_pipeline(cli *c, const cli_view *v,
                                const lh_exec_options *exec,
                                const lh_train_options *run,
                                lh_train_result **out)
{
    lh_exec *x = NULL;
    CLI_TRY(lh_exec_make(v->pipeline, v->schedule, exec, &x, &c->err));
    lh_status status = lh_train_timed(v->pipeline, x, run, out, &c->err);
    lh_exec_free(x);
    return status;
}

/* Divides the --rails text at its commas; `rails` owns the text. */
static lh_status parse_rails(cli *c, train_rails *rails)
{
    const train_settings *s = c->settings;
    if (!s->rails)
        return LH_OK;
    rails->text = strdup(s->rails);
    if (!rails->text)
        return cli_no_memory(c);
    for (char *at = rails->text; at; rails->n++) {
        char *end = strchr(at, ',');
        if (end)
            *end++ = 0;
        if (rails->n == TRAIN_MOST_RAILS || !*at)
            return cli_usage(c,
                             "--rails %s: expected 1 to %d interfaces, "
                             "networks or addresses, separated by commas",
                             s->rails, TRAIN_MOST_RAILS);
        rails->parts[rails->n] = at;
        at = end;
    }
    return LH_OK;
}

/* Builds the execution plan and the run's options, with callbacks for progress,
 * switches and stops, and runs the iterations. */
static lh_status train(cli *c, const cli_view *v, const lh_plan *plan,
                       train_changes *changes, lh_train_result **out)
{
    const train_settings *s = c->settings;
    run_context w = {
        .c = c, .steps = s->steps, .changes = changes, .process = getpid()};
    lh_exec_options exec = {.size = sizeof exec,
                            .fifo = s->model.fifo,
                            .receive_slots = s->buffers,
                            .coupled_queue = s->model.coupled,
                            .host_copy_ns = s->model.host_copy_ns};
    const lh_delegation copies = {.size = sizeof copies,
                                  .staging_ns = s->staging_ns / s->speed};
    const lh_adapt_options decides = {.size = sizeof decides,
                                      .delegation = &copies};
    const lh_train_adapt adapt = {.size = sizeof adapt,
                                  .decision_options = &decides,
                                  .on_event = show_notice,
                                  .moves_hosts = s->moving_ns && s->replicas,
                                  .moves_layers =
                                      s->moving_ns && changes->layer_rules,
                                  .layer_ns = changes->layer_ns};
    const lh_train_options run = {
        .size = sizeof run,
        .transport = train_transports[s->transport],
        .steps = s->steps,
        .message_bytes = s->message_bytes,
        .real_links = s->real_links,
        .insecure = s->insecure,
        .silence_ns = s->silence_ns,
        .max_restarts = s->max_restarts,
        .n_rails = changes->rails.n,
        .rails = changes->rails.parts,
        .profiles = s->profile_out != NULL,
        .realtime = s->realtime,
        .progress = show_iteration,
        .stop = get_stop_request,
        .failed = show_failure,
        .joining = note_joining,
        .context = &w,
        .reschedule = changes->n || changes->layers.n || changes->hosts.n
                          ? next_schedule
                          : NULL,
        .switched = show_switch,
        .migrated = print_migration,
        .moves_layers = changes->layers.n > 0,
        .moves_places = changes->hosts.n > 0,
        .layers = s->device == LH_TRAIN_CPU ? NULL : changes->first_layers,
        .event_timeline = changes->event_timeline,
        .adapt = s->adapt ? &adapt : NULL,
        .warning = show_remark,
        .enforces_memory =
            cli_is_given(c, "memory") && s->memory == TRAIN_MEMORY_ENFORCE};
    cli_set_receives(&s->model, &exec.receives, &exec.override_receives);
    train_paths_set(c, changes, &exec);
    CLI_TRY(train_changes_check(c, v, &exec, changes));
    if (s->log)
        CLI_TRY(train_log_open(c, s->log, &w.log));
    char completed[PROGRESS_TEXT];
    void *map = mmap(NULL, sizeof *w.progress, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    w.progress = map == MAP_FAILED ? NULL : map;
    cli_interrupts_begin(c, CLI_INTERRUPT_AGAIN);
    train_clock_begin(&changes->clock);
    lh_status status = plan ? train_plan(c, v, plan, &exec, &run, out)
                            : train_pipeline(c, v, &exec, &run, out);
    train_clock_end(&changes->clock);
    cli_interrupts_end();
    cli_progress_end();
    const bool logged = train_log_close(&w.log);
    format_completed(w.progress, completed);
    if (status != LH_OK)
        snprintf(c->err.text + strlen(c->err.text),
                 sizeof c->err.text - strlen(c->err.text), "%s", completed);
    changes->has_lost_output = w.progress && w.progress->has_lost_output;
    if (w.progress)
        munmap(w.progress, sizeof *w.progress);
    if (status == LH_OK &&
        ((*out)->interrupted || !logged || changes->has_lost_output))
        c->exit_code = EXIT_FAILED;
    return status;
}

/* --- command ------------------------------------------------------------ */

/* Simulates the run's final state, its last schedule under the last events and
 * migrations, and prints the results. predicted_ns: per iteration; NULL without
 * events. */
static lh_status write_final_state(cli *c, const cli_view *v,
                                   const lh_plan *plan,
                                   const train_changes *changes,
                                   const int64_t *predicted_ns,
                                   const lh_train_result *r)
{
    const train_settings *s = c->settings;
    const lh_event_timeline *timeline =
        r->n_iterations ? changes->event_timeline : NULL;
    const train_change *change = train_changes_find_last(changes, r);
    const lh_schedule *adapted = lh_train_schedule(r);
    lh_pipeline *then = NULL;
    if (!change && !timeline && !adapted)
        return train_write_results(c, v, v, plan, changes, predicted_ns, r);
    if (r->n_iterations)
        CLI_TRY(train_pipeline_at(
            c, changes, v->pipeline, r, train_last_step(r),
            timeline ? lh_event_timeline_state(timeline, train_last_step(r))
                     : 0,
            &then));
    cli_view last = {.pipeline = then ? then : v->pipeline,
                     .method = change ? change->view.method : v->method,
                     .schedule = change ? change->view.schedule : v->schedule};
    if (s->adapt && adapted) {
        last.method = train_last_schedule_name(v, r);
        last.schedule = adapted;
    }
    lh_status status = train_simulate(c, changes, &last);
    if (status == LH_OK)
        status =
            train_write_results(c, v, &last, plan, changes, predicted_ns, r);
    cli_view_fini(&last);
    lh_pipeline_free(then);
    return status;
}

/* Predicts the iteration times, under the events if there are any, prints the
 * results and writes the requested files. */
static lh_status write_results(cli *c, const cli_view *v, const lh_plan *plan,
                               const train_changes *changes, lh_train_result *r)
{
    int64_t *predicted_ns = NULL;
    const train_settings *s = c->settings;
    if (s->adapt && changes->event_timeline && !r->is_on_other_process &&
        r->n_iterations)
        CLI_TRY(r->is_calibrated ? LH_OK
                                 : train_adapt_predict(c, v, changes, r));
    else
        CLI_TRY(train_events_predict(c, v, changes, r, &predicted_ns));
    lh_status status = write_final_state(c, v, plan, changes, predicted_ns, r);
    free(predicted_ns);
    return status;
}

/* Simulates the view's schedule as the prediction, runs it, and writes the
 * results. */
static lh_status run_view(cli *c, cli_view *v, const lh_plan *plan,
                          train_changes *changes)
{
    lh_train_result *result = NULL;
    CLI_TRY(train_simulate(c, changes, v));
    CLI_TRY(train(c, v, plan, changes, &result));
    lh_status status = train_paths_end(c, v, result, changes);
    if (status == LH_OK)
        status = write_results(c, v, plan, changes, result);
    lh_train_result_free(result);
    return status;
}

/* Returns the message size in bytes that converts gbps values of --inject into
 * transfer times: the option's, else the plan's, else a default. */
static uint64_t find_message_bytes(cli *c, const lh_plan *plan)
{
    const train_settings *s = c->settings;
    if (s->message_bytes)
        return s->message_bytes;
    return plan ? lh_train_message_bytes(plan) : LH_TRAIN_MESSAGE_BYTES;
}

/* Changes the view's pipeline for execution: delays from --inject, higher speed
 * (--speed), or the one under --events. Each copy replaces the previous one in
 * *own, which the caller frees. */
static lh_status change_pipeline(cli *c, cli_view *v, const lh_plan *plan,
                                 train_changes *changes, lh_pipeline **own)
{
    const train_settings *s = c->settings;
    lh_pipeline *changed;
    CLI_TRY(cli_check_replicas(c, s->replicas, plan));
    if (s->inject) {
        CLI_TRY(cli_inject(c, s->inject, v->pipeline,
                           find_message_bytes(c, plan), &changed));
        v->pipeline = *own = changed;
    }
    if (s->speed > 1) {
        CLI_TRY(cli_scale_speed(c, v->pipeline, s->speed, &changed));
        lh_pipeline_free(*own);
        v->pipeline = *own = changed;
    }
    return s->events || s->replicas ? train_events_read(c, v, changes, own)
                                    : LH_OK;
}

/* Rejects options that the device does not have. */
static lh_status check_device_options(cli *c)
{
    const train_settings *s = c->settings;
    const bool cpu = s->device == LH_TRAIN_CPU;
    const struct {
        const char *name;
        bool is_given, is_for_cpu;
    } some[] = {
        {"speed", s->speed > 1, false},
        {"message-bytes", s->message_bytes > 0, false},
        {"real-links", s->real_links, false},
        {"layers", s->layers, false},
        {"moving", s->moving_ns > 0 && !s->adapt && !s->replicas, false},
        {"emulate-links", s->emulate_links, true},
        {"profile-out", s->profile_out, true},
        {"memory", cli_is_given(c, "memory"), true},
        {"data", s->data, true},
        {"tokenizer", s->tokenizer, true},
        {"min-rate", cli_is_given(c, "min-rate"), true},
        {"warmup", cli_is_given(c, "warmup"), true},
        {"rate", cli_is_given(c, "rate"), true},
        {"threads", cli_is_given(c, "threads"), true},
        {"rate-decay", cli_is_given(c, "rate-decay"), true},
        {"decay-steps", s->decay_steps > 0, true},
        {"beta1", cli_is_given(c, "beta1"), true},
        {"beta2", cli_is_given(c, "beta2"), true},
        {"epsilon", cli_is_given(c, "epsilon"), true},
        {"validation-data", s->validation_data, true},
        {"weight-decay", cli_is_given(c, "weight-decay"), true},
        {"clip", cli_is_given(c, "clip"), true},
        {"delayed-update", s->delayed_update, true},
        {"format", cli_is_given(c, "format"), true},
        {"validation", cli_is_given(c, "validation"), true},
        {"validate-every", cli_is_given(c, "validate-every"), true},
        {"keep", cli_is_given(c, "keep"), true},
        {"offload-to", cli_is_given(c, "offload-to"), true},
        {"checkpoint", s->checkpoint, true},
        {"checkpoint-every", s->checkpoint_every > 0, true},
        {"resume", s->resume, true},
        {"override", s->overrides, true},
        {"fresh", s->fresh, true},
        {"weights", s->weights, true},
    };
    for (uint32_t i = 0; i < CLI_COUNT_OF(some); i++)
        if (some[i].is_given && some[i].is_for_cpu != cpu)
            return cli_usage(c, "--%s requires --device %s", some[i].name,
                             cpu ? "timed" : "cpu");
    return LH_OK;
}

/* Rejects options of schedules, links and their changes during the run that
 * have no effect in combination with others. */
static lh_status check_schedule_options(cli *c)
{
    const train_settings *s = c->settings;
    const bool cpu = s->device == LH_TRAIN_CPU;
    const bool moves = s->layers_at || s->places_at;
    if (s->replicas && !s->events && !(s->adapt && s->moving_ns))
        return cli_usage(c, "--replicas requires --events, or --adapt with "
                            "--moving");
    if (s->model.host_copy_ns && !s->host_memory)
        return cli_usage(c, "--host-copy requires --host-memory");
    if (s->host_memory && cpu && !s->model.host_copy_ns)
        return cli_usage(c, "--host-memory on the cpu device requires "
                            "--host-copy, the planned time of a copy");
    if (s->host_memory && (s->speed > 1 || s->inject))
        return cli_usage(c, "--host-memory cannot be combined with --speed "
                            "or --inject");
    if (s->inject && s->real_links)
        return cli_usage(c, "--inject changes emulated links; it cannot be "
                            "combined with --real-links");
    if ((s->schedule_at || moves) && s->profile_out)
        return cli_usage(c, "--profile-out measures one schedule; it cannot be "
                            "combined with --schedule-at, --layers-at or "
                            "--places-at");
    if (s->adapt && (s->schedule_at || moves || s->profile_out))
        return cli_usage(c, "--adapt chooses schedules itself; it cannot be "
                            "combined with --schedule-at, --layers-at, "
                            "--places-at or --profile-out");
    if (s->layers && !s->layers_at && !(s->adapt && s->moving_ns))
        return cli_usage(c, "--layers requires --layers-at, or --adapt with "
                            "--moving");
    if (s->moving_ns && !moves && !s->adapt)
        return cli_usage(c, "--moving requires --layers-at, --places-at or "
                            "--adapt");
    if (s->path && s->profile_out)
        return cli_usage(c, "--profile-out measures links without host copies; "
                            "it cannot be combined with --path");
    if (s->path && s->adapt)
        return cli_usage(c, "--path cannot be combined with --adapt, which "
                            "chooses the path");
    if (s->staging_ns && !s->path && !s->adapt)
        return cli_usage(c, "--staging requires --path or --adapt");
    if (s->events && s->profile_out)
        return cli_usage(c, "--profile-out measures a run without events; it "
                            "cannot be combined with --events");
    return LH_OK;
}

/* Rejects options of data, optimizer and checkpoints that have no effect in
 * combination with others. */
static lh_status check_training_options(cli *c)
{
    const train_settings *s = c->settings;
    if (s->checkpoint_every && !s->checkpoint)
        return cli_usage(c, "--checkpoint-every requires --checkpoint");
    if (cli_is_given(c, "keep") && !s->checkpoint)
        return cli_usage(c, "--keep requires --checkpoint");
    if (cli_is_given(c, "validate-every") && !(s->validation > 0) &&
        !s->validation_data)
        return cli_usage(c, "--validate-every requires --validation above 0, "
                            "or --validation-data");
    if (s->validation > 0 && s->validation_data)
        return cli_usage(c, "--validation cannot be combined with "
                            "--validation-data");
    if (s->warmup > s->steps && !s->resume)
        return cli_usage(c,
                         "--warmup %" PRIu64 " is above --steps %" PRIu32
                         ": the learning rate would not reach --rate",
                         s->warmup, s->steps);
    if (s->decay_steps && s->rate_decay == LH_RATE_DECAY_CONSTANT)
        return cli_usage(c, "--decay-steps cannot be combined with "
                            "--rate-decay constant");
    if (s->rate_decay == LH_RATE_DECAY_CONSTANT && cli_is_given(c, "min-rate"))
        return cli_usage(c, "--min-rate cannot be combined with --rate-decay "
                            "constant");
    if (s->tokenizer && s->format)
        return cli_usage(c, "--tokenizer requires --format text");
    if (s->overrides && !s->resume)
        return cli_usage(c, "--override requires --resume");
    if (s->fresh && !s->checkpoint)
        return cli_usage(c, "--fresh requires --checkpoint");
    if (s->resume && s->weights)
        return cli_usage(c, "--resume cannot be combined with --weights");
    return LH_OK;
}

/* Rejects options of ranks and transports that have no effect in combination
 * with others; sets the transport for --ranks local. */
static lh_status check_transport_options(cli *c)
{
    train_settings *s = c->settings;
    const bool cpu = s->device == LH_TRAIN_CPU;
    CLI_TRY(train_hosts_check_launcher(c));
    if (s->ranks == TRAIN_RANKS_LOCAL && s->transport > TRAIN_LOCAL)
        return cli_usage(c,
                         "--ranks local cannot be combined with --transport %s",
                         train_transports[s->transport]);
    if (s->ranks == TRAIN_RANKS_LOCAL)
        s->transport = TRAIN_LOCAL;
    if (s->insecure && s->transport != TRAIN_UCX)
        return cli_usage(c, "--insecure requires --transport ucx");
    if (s->silence_ns && s->transport == TRAIN_INPROC)
        return cli_usage(c, "--silence requires --transport local, tcp or ucx");
    if (s->max_restarts && cpu && !s->checkpoint)
        return cli_usage(c, "--max-restarts requires --checkpoint");
    if (s->max_restarts && s->profile_out)
        return cli_usage(c, "--max-restarts cannot be combined with "
                            "--profile-out");
    if (s->rails && s->transport != TRAIN_TCP)
        return cli_usage(c, "--rails requires --transport tcp");
    return s->transport <= TRAIN_LOCAL ? cli_check_outputs(c) : LH_OK;
}

/* Rejects options of 'longhaul train' that have no effect in combination with
 * the other options given. */
static lh_status check_options(cli *c)
{
    CLI_TRY(check_device_options(c));
    CLI_TRY(check_schedule_options(c));
    CLI_TRY(check_training_options(c));
    return check_transport_options(c);
}

/* Reads the options for the plan or pipeline `problem`, builds its schedules
 * and runs it. `first`: data paths (direct or delegated sends) for which
 * schedules are built. *own: the pipeline that is executed, if changed. */
static lh_status run_problem(cli *c, cli_problem *problem, cli_view *v,
                             cli_paths *first, train_changes *changes,
                             lh_pipeline **own)
{
    const train_settings *s = c->settings;
    const cli_model model = s->model;
    CLI_TRY(check_options(c));
    CLI_TRY(train_hosts_start(c));
    CLI_TRY(cli_problem_read(c, c->operands[0], false, problem));
    if (s->device == LH_TRAIN_CPU)
        CLI_TRY(check_cpu(c, problem->plan));
    CLI_TRY(cli_problem_add_direction(c, s->schedule, s->device == LH_TRAIN_CPU,
                                      problem));
    CLI_TRY(cli_problem_add_host_memory(c, s->host_memory, problem));
    v->pipeline = cli_problem_pipeline(problem);
    if (cli_is_given(c, "offload-to") && !s->host_memory &&
        !lh_pipeline_offloads(v->pipeline))
        return cli_usage(c, "--offload-to requires a plan whose job has "
                            "offload, or --host-memory");
    CLI_TRY(train_paths_begin(c, v, first));
    CLI_TRY(cli_view_find_schedule(c, v, problem, s->schedule, &s->model,
                                   train_first_sub_blocks(s)));
    CLI_TRY(train_changes_read(c, v, changes));
    CLI_TRY(parse_rails(c, &changes->rails));
    CLI_TRY(train_migrations_read(c, v, problem->plan, changes));
    v->pipeline = cli_problem_pipeline(problem);
    CLI_TRY(change_pipeline(c, v, problem->plan, changes, own));
    CLI_TRY(train_paths_read(c, v, &model, changes));
    return run_view(c, v, problem->plan, changes);
}

void train_report_failure(const cli *c)
{
    const train_settings *s = c->settings;
    if (c->joins_ranks || s->transport <= TRAIN_LOCAL ||
        (s->hosts && !getenv("RANK") && !train_hosts_become_rank(s->hosts)))
        return;
    train_hosts_note_failure();
    lh_train_report_failure(c->err.text);
}

lh_status train_run(cli *c)
{
    cli_problem problem = {0};
    cli_view view = {0};
    cli_paths first = {0};
    train_changes changes = {0};
    lh_pipeline *injected = NULL;
    /* A closed reader of the output, or of the log, does not end the run. */
    void (*const old_pipe)(int) = signal(SIGPIPE, SIG_IGN);
    lh_status status =
        run_problem(c, &problem, &view, &first, &changes, &injected);
    if (!changes.has_lost_output) /* else the results are an error, too */
        signal(SIGPIPE, old_pipe);
    train_changes_fini(&changes);
    cli_paths_fini(&first);
    cli_view_fini(&view);
    lh_pipeline_free(injected);
    cli_problem_fini(&problem);
    return status;
}
