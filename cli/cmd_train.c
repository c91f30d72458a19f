/* SPDX-License-Identifier: Apache-2.0 */
/* longhaul train: runs a plan, and says how its prediction held. */
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "difference.h"
#include "inject.h"
#include "view.h"

#include <errno.h>
#include <inttypes.h>
#include <longhaul/cost.h>
#include <longhaul/engine.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE_TIMED, DEVICE_CPU };

static const char *const devices[] = {"timed", "cpu", NULL};
static const char *const transports[] = {"inproc", "local", "ucx", "tcp", NULL};
static const char *const formats[] = {"text", "u16", "u32", NULL};

typedef struct settings {
    const char *schedule, *inject, *trace, *html, *log;
    uint32_t device, transport, steps, sub_blocks, buffers, message_bytes,
        speed;
    bool realtime, emulate_links, real_links;
    cli_model model;
    const char *data, *tokenizer, *checkpoint, *resume, *weights, *warmup;
    const char *rate, *min_rate, *weight_decay, *clip, *validation;
    uint32_t format, checkpoint_every, keep, validate_every;
} settings;

static const cli_option options[] = {
    {.name = "device",
     .type = CLI_CHOICE,
     .at = offsetof(settings, device),
     .arg = "DEVICE",
     .preset = "timed",
     .choices = devices,
     .help = "What runs the passes. timed: nothing does, they take the time "
             "that the pipeline gives them. cpu: this machine's processors, "
             "which train the plan's model."},
    {.name = "transport",
     .type = CLI_CHOICE,
     .at = offsetof(settings, transport),
     .arg = "TRANSPORT",
     .preset = "inproc",
     .choices = transports,
     .help = "What carries the messages: inproc, with ranks as threads of one "
             "process; local, with ranks as processes of this machine; ucx or "
             "tcp, with ranks that mpirun or srun has started."},
    {.name = "schedule",
     .letter = 's',
     .type = CLI_TEXT,
     .at = offsetof(settings, schedule),
     .arg = "S.csv|METHOD",
     .help = "The schedule: a CSV file, or a method that makes one; see "
             "Methods below. Without it: auto for a pipeline, its own for a "
             "plan.",
     .words = CLI_WORDS_METHODS_OR_FILES},
    {.name = "sub-blocks",
     .type = CLI_COUNT,
     .at = offsetof(settings, sub_blocks),
     .arg = "N",
     .preset = "1",
     .least = 1,
     .most = LH_MAX_PARTS,
     .help = "greedy: cut every weight-gradient pass into N parts."},
    {.name = "steps",
     .letter = 'n',
     .type = CLI_COUNT,
     .at = offsetof(settings, steps),
     .arg = "N",
     .preset = "3",
     .least = 1,
     .most = 100000000,
     .help = "Iterations to run."},
    {.name = "receives",
     .type = CLI_CHOICE,
     .at = offsetof(settings, model.receives),
     .arg = "WHEN",
     .preset = "early",
     .choices = cli_receives,
     .help = "When receives are posted, and so when a transfer may start: "
             "ahead of need (early), once the rank gets to the pass in need "
             "(late), or the same but never delayed by weight-gradient passes "
             "(late-fd)."},
    {.name = "fifo",
     .type = CLI_FLAG,
     .at = offsetof(settings, model.fifo),
     .help = "Messages leave first in, first out, whatever order the schedule "
             "gives."},
    {.name = "inject",
     .type = CLI_TEXT,
     .at = offsetof(settings, inject),
     .arg = "LINK=DELAYS",
     .help = "Other delays on links: LINK=latency:20ms,gbps:10 or "
             "LINK=transfer:3ms; several with ';' between them. LINK is a "
             "link's name, or FROM-TO. The schedule is made without them, the "
             "prediction has them."},
    {.name = "buffers",
     .type = CLI_COUNT,
     .at = offsetof(settings, buffers),
     .arg = "N",
     .least = 1,
     .most = 1000000,
     .help = "Receives that a rank may have posted at once. Without this "
             "option: as many as the prediction needs."},
    {.name = "message-bytes",
     .type = CLI_COUNT,
     .at = offsetof(settings, message_bytes),
     .arg = "N",
     .least = 1,
     .most = 1u << 30,
     .help = "timed: size of a message. Without this option: a GPU's share of "
             "an activation for a plan, 65536 for a pipeline."},
    {.name = "speed",
     .type = CLI_COUNT,
     .at = offsetof(settings, speed),
     .arg = "N",
     .preset = "1",
     .least = 1,
     .most = 1000,
     .help = "timed: play everything N times as fast: passes, links, and the "
             "prediction. All times that come out are as played."},
    {.name = "trace",
     .type = CLI_TEXT,
     .at = offsetof(settings, trace),
     .arg = "FILE",
     .help = "Write what the last iteration did, as Chrome trace events.",
     .words = CLI_WORDS_FILES},
    {.name = "html",
     .type = CLI_TEXT,
     .at = offsetof(settings, html),
     .arg = "FILE",
     .help = "Write a report that shows the last iteration beside its "
             "prediction.",
     .words = CLI_WORDS_FILES},
    {.name = "log",
     .type = CLI_TEXT,
     .at = offsetof(settings, log),
     .arg = "FILE",
     .help = "Append a line of JSON for each iteration.",
     .words = CLI_WORDS_FILES},
    {.name = "realtime",
     .type = CLI_FLAG,
     .at = offsetof(settings, realtime),
     .help = "Run ranks under SCHED_FIFO, which takes the right to."},
    {.name = "real-links",
     .type = CLI_FLAG,
     .at = offsetof(settings, real_links),
     .help = "timed: messages take the network as it is, without the "
             "pipeline's delays; for ranks on several hosts."},
    {.name = "emulate-links",
     .type = CLI_FLAG,
     .at = offsetof(settings, emulate_links),
     .help = "cpu: messages take the plan's links, as they do on the timed "
             "device. Also with --inject."},
    {.name = "data",
     .type = CLI_TEXT,
     .at = offsetof(settings, data),
     .arg = "FILE",
     .help = "cpu: what to train on.",
     .words = CLI_WORDS_FILES},
    {.name = "format",
     .type = CLI_CHOICE,
     .at = offsetof(settings, format),
     .arg = "FORMAT",
     .preset = "text",
     .choices = formats,
     .help = "cpu: what the data are: text, or tokens as little-endian "
             "numbers of 16 or 32 bits."},
    {.name = "tokenizer",
     .type = CLI_TEXT,
     .at = offsetof(settings, tokenizer),
     .arg = "FILE",
     .help = "cpu: a tokenizer.json of a byte-level BPE for a text. Without "
             "it a token is a byte.",
     .words = CLI_WORDS_FILES},
    {.name = "validation",
     .type = CLI_TEXT,
     .at = offsetof(settings, validation),
     .arg = "SHARE",
     .preset = "0",
     .help = "cpu: share of the data, at the end, that is kept for "
             "validation: 0 up to 1."},
    {.name = "validate-every",
     .type = CLI_COUNT,
     .at = offsetof(settings, validate_every),
     .arg = "N",
     .preset = "10",
     .least = 1,
     .most = 100000000,
     .help = "cpu: iterations from one validation to the next."},
    {.name = "rate",
     .type = CLI_TEXT,
     .at = offsetof(settings, rate),
     .arg = "R",
     .preset = "3e-4",
     .help = "cpu: the highest learning rate."},
    {.name = "min-rate",
     .type = CLI_TEXT,
     .at = offsetof(settings, min_rate),
     .arg = "R",
     .help = "cpu: the learning rate at the end of the cosine. Without this "
             "option: a tenth of --rate."},
    {.name = "warmup",
     .type = CLI_TEXT,
     .at = offsetof(settings, warmup),
     .arg = "N",
     .help = "cpu: iterations in which the rate grows. Without this option: "
             "a hundredth of all."},
    {.name = "weight-decay",
     .type = CLI_TEXT,
     .at = offsetof(settings, weight_decay),
     .arg = "X",
     .preset = "0.1",
     .help = "cpu: AdamW's weight decay."},
    {.name = "clip",
     .type = CLI_TEXT,
     .at = offsetof(settings, clip),
     .arg = "NORM",
     .preset = "1",
     .help = "cpu: gradients are scaled down to this global norm; 0: never."},
    {.name = "checkpoint",
     .type = CLI_TEXT,
     .at = offsetof(settings, checkpoint),
     .arg = "DIR",
     .help = "cpu: write checkpoints into folders in DIR, one at the end of "
             "the run.",
     .words = CLI_WORDS_FILES},
    {.name = "checkpoint-every",
     .type = CLI_COUNT,
     .at = offsetof(settings, checkpoint_every),
     .arg = "N",
     .least = 1,
     .most = 100000000,
     .help = "cpu: and one after every N iterations."},
    {.name = "keep",
     .type = CLI_COUNT,
     .at = offsetof(settings, keep),
     .arg = "K",
     .preset = "2",
     .least = 1,
     .most = 100000000,
     .help = "cpu: keep the last K checkpoints."},
    {.name = "resume",
     .type = CLI_TEXT,
     .at = offsetof(settings, resume),
     .arg = "DIR",
     .help = "cpu: go on from a checkpoint: its folder, or the folder of "
             "several, of which the newest is taken. --steps counts from the "
             "beginning of the first run.",
     .words = CLI_WORDS_FILES},
    {.name = "weights",
     .type = CLI_TEXT,
     .at = offsetof(settings, weights),
     .arg = "FILE",
     .help = "cpu: begin with the weights of a safetensors file.",
     .words = CLI_WORDS_FILES},
};

static const cli_example examples[] = {
    {"longhaul train plan.json --steps 5",
     "Play five iterations of a plan in real time on this machine."},
    {"longhaul train pipeline.yaml -s 1f1b --receives late",
     "See what receives cost that are not posted ahead of need."},
    {"longhaul train pipeline.yaml --inject 'dc0-dc1=latency:40ms,gbps:10'",
     "The same passes over a slower link."},
    {"longhaul train plan.json --device cpu --data book.txt --checkpoint run",
     "Train the plan's model on this machine's processors."},
};

/* --- while it runs
 * -------------------------------------------------------------- */

static volatile sig_atomic_t interrupts;

static void on_interrupt(int number)
{
    (void)number;
    interrupts = interrupts + 1;
}

typedef struct watch {
    cli *c;
    FILE *log;
    uint32_t steps;
    bool told;
} watch;

static int asked_to_stop(void *of)
{
    watch *w = of;
    if (interrupts == 0)
        return LH_STOP_NO;
    if (!w->told)
        cli_note(w->c, "stopping after this iteration; interrupt again to "
                       "stop at once");
    w->told = true;
    return interrupts > 1 ? LH_STOP_NOW : LH_STOP_AFTER;
}

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static double tokens_per_s(const lh_iteration *it)
{
    return it->ns > 0 ? (double)it->tokens * 1e9 / (double)it->ns : 0;
}

static json_t *iteration_json(const lh_iteration *it)
{
    json_t *j =
        json_pack("{s:I, s:f, s:o}", "step", (json_int_t)it->step, "seconds",
                  (double)it->ns / 1e9, "loss", number_or_null(it->loss));
    if (j && isfinite(it->loss)) {
        json_object_set_new(j, "gradient_norm", number_or_null(it->norm));
        json_object_set_new(j, "rate", number_or_null(it->rate));
        json_object_set_new(j, "tokens_per_s", json_real(tokens_per_s(it)));
        if (isfinite(it->validation_loss))
            json_object_set_new(j, "validation_loss",
                                json_real(it->validation_loss));
    } else if (j) {
        json_object_set_new(j, "slips", json_integer((json_int_t)it->slips));
    }
    return j;
}

static void show_iteration(void *of, const lh_iteration *it)
{
    watch *w = of;
    char time[CLI_TIME_TEXT];
    cli_time_text(it->ns, time);
    if (isfinite(it->loss))
        cli_progress(
            w->c, "step %" PRIu64 " of %" PRIu32 ": loss %.4f, %.0f tokens/s",
            it->step + 1, w->steps, it->loss, tokens_per_s(it));
    else
        cli_progress(w->c, "iteration %" PRIu64 " of %" PRIu32 ": %s",
                     it->step + 1, w->steps, time);
    if (!w->log)
        return;
    json_t *line = iteration_json(it);
    char *text =
        line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    if (text)
        fprintf(w->log, "%s\n", text);
    fflush(w->log);
    free(text);
    json_decref(line);
}

static void catch_interrupts(struct sigaction old[2])
{
    struct sigaction new = {.sa_handler = on_interrupt};
    sigemptyset(&new.sa_mask);
    interrupts = 0;
    sigaction(SIGINT, &new, &old[0]);
    sigaction(SIGTERM, &new, &old[1]);
}

static void restore_interrupts(const struct sigaction old[2])
{
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
}

static lh_status take_real(cli *c, const char *option, const char *text,
                           double *out)
{
    const char *rest;
    if (!text)
        return LH_OK;
    if (!cli_parse_real(text, out, &rest) || *rest)
        return cli_usage(c, "--%s: '%.40s' is not a number of 0 or more",
                         option, text);
    return LH_OK;
}

static lh_status take_numbers(cli *c, lh_train_model *m)
{
    const settings *s = c->settings;
    if (s->warmup && !cli_parse_count(s->warmup, 0, 100000000, &m->warmup))
        return cli_usage(c, "--warmup: '%.40s' is not a number of iterations",
                         s->warmup);
    CLI_TRY(take_real(c, "rate", s->rate, &m->rate));
    CLI_TRY(take_real(c, "min-rate", s->min_rate, &m->min_rate));
    CLI_TRY(take_real(c, "weight-decay", s->weight_decay, &m->weight_decay));
    CLI_TRY(take_real(c, "clip", s->clip, &m->clip));
    CLI_TRY(take_real(c, "validation", s->validation, &m->validation));
    return m->validation < 1
               ? LH_OK
               : cli_usage(c, "--validation: at least 0 and less than 1");
}

static lh_status take_model(cli *c, const lh_plan *plan, lh_train_model *m)
{
    const settings *s = c->settings;
    *m = lh_train_model_defaults();
    m->model = plan->job->model;
    m->micro_batch = plan->best.layout.micro_batch;
    m->sequence = plan->job->training.sequence;
    m->replicas = plan->best.layout.data;
    m->seed = c->common.seed;
    m->data = s->data;
    m->token_bytes = 2 * s->format;
    m->tokenizer = s->tokenizer;
    m->validate_every = s->validate_every;
    m->checkpoint = s->checkpoint;
    m->checkpoint_every = s->checkpoint_every;
    m->keep = s->keep;
    m->resume = s->resume;
    m->weights = s->weights;
    m->emulate_links = s->emulate_links || s->inject;
    return take_numbers(c, m);
}

/* What the cpu device cannot do, before it is asked to. */
static lh_status check_cpu(cli *c, const lh_plan *plan)
{
    const settings *s = c->settings;
    if (!plan)
        return cli_usage(c, "--device cpu trains the model of a plan; a "
                            "pipeline has none");
    if (!s->data)
        return cli_usage(c, "--device cpu needs something to train on: --data");
    const lh_layout *l = &plan->best.layout;
    if (l->tensor * l->context * l->expert != 1)
        return cli_error(c, LH_EUNSUPPORTED,
                         "the plan has tensor %" PRIu32 ", context %" PRIu32
                         ", expert %" PRIu32
                         "; the cpu device runs whole layers: set these to 1 "
                         "in the job's layout",
                         l->tensor, l->context, l->expert);
    return LH_OK;
}

static lh_status train_cpu(cli *c, const lh_plan *plan,
                           const lh_pipeline *pipeline, const lh_exec *exec,
                           const lh_train_options *with, lh_train_result **out)
{
    lh_train_model m;
    uint32_t n = lh_pipeline_n_chunks(pipeline);
    CLI_TRY(take_model(c, plan, &m));
    uint32_t *first_layers = calloc((size_t)n + 1, sizeof *first_layers);
    if (!first_layers)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count;
        lh_plan_layers(plan, i, &first_layers[i], &count);
        first_layers[i + 1] = first_layers[i] + count;
    }
    m.first_layers = first_layers;
    lh_status status = lh_train_cpu(pipeline, exec, &m, with, out, &c->err);
    free(first_layers);
    return status;
}

static lh_status train(cli *c, const lh_plan *plan, const lh_pipeline *pipeline,
                       const lh_exec *exec, uint64_t message_bytes,
                       lh_train_result **out)
{
    const settings *s = c->settings;
    watch w = {.c = c, .steps = s->steps};
    if (s->log && !(w.log = fopen(s->log, "a")))
        return cli_error(c, LH_EIO, "cannot write %s: %s", s->log,
                         strerror(errno));
    lh_train_options with = {.size = sizeof with,
                             .transport = transports[s->transport],
                             .steps = s->steps,
                             .message_bytes = message_bytes,
                             .real_links = s->real_links,
                             .realtime = s->realtime,
                             .progress = show_iteration,
                             .stop = asked_to_stop,
                             .context = &w};
    struct sigaction old[2];
    catch_interrupts(old);
    lh_status status =
        s->device == DEVICE_CPU
            ? train_cpu(c, plan, pipeline, exec, &with, out)
            : lh_train_timed(pipeline, exec, &with, out, &c->err);
    restore_interrupts(old);
    cli_progress_end();
    if (w.log && fclose(w.log) != 0 && status == LH_OK)
        status = cli_error(c, LH_EIO, "cannot write %s", s->log);
    if (status == LH_OK && (*out)->interrupted)
        c->exit_code = EXIT_FAILED;
    return status;
}

/* --- output
 * --------------------------------------------------------------------- */

static int compare_ns(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

typedef struct summary {
    int64_t median_ns, least_ns, most_ns, worst_late_ns;
    uint64_t slips;
} summary;

static lh_status summarise(cli *c, const lh_train_result *r, summary *out)
{
    *out = (summary){0};
    uint32_t n = r->n_iterations;
    int64_t *ns = calloc((size_t)n + 1, sizeof *ns);
    if (!ns)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < n; i++) {
        const lh_iteration *it = &r->iterations[i];
        ns[i] = it->ns;
        out->slips += it->slips;
        if (it->worst_late_ns > out->worst_late_ns)
            out->worst_late_ns = it->worst_late_ns;
    }
    qsort(ns, n, sizeof *ns, compare_ns);
    if (n) {
        out->median_ns = n % 2 ? ns[n / 2] : (ns[n / 2 - 1] + ns[n / 2]) / 2;
        out->least_ns = ns[0];
        out->most_ns = ns[n - 1];
    }
    free(ns);
    return LH_OK;
}

static double error_of(int64_t predicted_ns, int64_t measured_ns)
{
    return predicted_ns > 0 ? (double)measured_ns / (double)predicted_ns - 1
                            : 0;
}

static json_t *iterations_json(const lh_train_result *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < r->n_iterations; i++) {
        json_t *one = iteration_json(&r->iterations[i]);
        if (!one || json_array_append_new(list, one)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Of the machines that the plan counts on; negative: not trained. */
static double utilisation(const lh_plan *plan, int64_t ns)
{
    if (!plan || ns <= 0)
        return -1;
    const lh_job *job = plan->job;
    const lh_layout *l = &plan->best.layout;
    double ranks = (double)l->pipeline * l->data;
    return lh_cost_iteration_flops(job) /
           ((double)ns / 1e9 * ranks * job->datacenters[0].gpu.flops_per_s);
}

static lh_status print_json(cli *c, const cli_view *v, const lh_plan *plan,
                            const lh_train_result *r, const summary *sum)
{
    const settings *s = c->settings;
    int64_t predicted = lh_timeline_makespan(v->timeline);
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:I, s:s, s:o, s:o, s:f, s:b, s:o}", "device",
        devices[s->device], "transport", transports[s->transport], "schedule",
        v->method, "ranks", (json_int_t)lh_pipeline_n_devices(v->pipeline),
        "receives", cli_receives[s->model.receives], "predicted_s",
        cli_seconds(predicted), "median_s", cli_seconds(sum->median_ns),
        "error", error_of(predicted, sum->median_ns), "interrupted",
        (int)r->interrupted, "iterations", iterations_json(r));
    if (j && s->device == DEVICE_CPU) {
        json_object_set_new(j, "mfu",
                            json_real(utilisation(plan, sum->median_ns)));
    } else if (j) {
        json_object_set_new(j, "speed", json_integer(s->speed));
        json_object_set_new(j, "slips", json_integer((json_int_t)sum->slips));
        json_object_set_new(j, "worst_late_s", cli_seconds(sum->worst_late_ns));
    }
    return cli_put_json(c, j);
}

static void print_timed(cli *c, const cli_view *v, const summary *sum)
{
    char a[CLI_TIME_TEXT];
    int64_t predicted = lh_timeline_makespan(v->timeline);
    fprintf(c->out, "predicted     %s\n", cli_time_text(predicted, a));
    fprintf(c->out, "measured      %s, %+.2f %%\n",
            cli_time_text(sum->median_ns, a),
            100 * error_of(predicted, sum->median_ns));
    fprintf(c->out, "lateness      %s at worst",
            cli_time_text(sum->worst_late_ns, a));
    if (sum->slips)
        fprintf(c->out, "; %" PRIu64 " passes began too late to end in time",
                sum->slips);
    fputc('\n', c->out);
}

static void print_trained(cli *c, const lh_plan *plan, const lh_train_result *r,
                          const summary *sum)
{
    const lh_iteration *first = &r->iterations[0];
    const lh_iteration *last = &r->iterations[r->n_iterations - 1];
    double share = utilisation(plan, sum->median_ns);
    char a[CLI_TIME_TEXT];
    fprintf(c->out,
            "loss          %.4f at step %" PRIu64 ", %.4f at step "
            "%" PRIu64 "\n",
            first->loss, first->step + 1, last->loss, last->step + 1);
    for (uint32_t i = r->n_iterations; i-- > 0;)
        if (isfinite(r->iterations[i].validation_loss)) {
            fprintf(c->out, "validation    %.4f after step %" PRIu64 "\n",
                    r->iterations[i].validation_loss,
                    r->iterations[i].step + 1);
            break;
        }
    fprintf(c->out, "iteration     %s: %.0f tokens/s",
            cli_time_text(sum->median_ns, a),
            sum->median_ns > 0
                ? (double)last->tokens * 1e9 / (double)sum->median_ns
                : 0.0);
    if (share >= 0)
        fprintf(c->out, ", %.1f %% of the plan's peak FLOPs", 100 * share);
    fputc('\n', c->out);
}

static void print_text(cli *c, const cli_view *v, const lh_plan *plan,
                       const lh_train_result *r, const summary *sum)
{
    const settings *s = c->settings;
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT];
    fprintf(c->out, "schedule      %s on %" PRIu32 " ranks, %s over %s",
            v->method, lh_pipeline_n_devices(v->pipeline), devices[s->device],
            transports[s->transport]);
    if (s->speed > 1)
        fprintf(c->out, ", %" PRIu32 " times as fast", s->speed);
    fputc('\n', c->out);
    fprintf(c->out, "iterations    %" PRIu32 "%s", r->n_iterations,
            r->interrupted ? ", interrupted" : "");
    if (r->n_iterations)
        fprintf(c->out, ", %s to %s", cli_time_text(sum->least_ns, a),
                cli_time_text(sum->most_ns, b));
    fputc('\n', c->out);
    if (r->n_iterations && s->device == DEVICE_CPU)
        print_trained(c, plan, r, sum);
    else if (r->n_iterations)
        print_timed(c, v, sum);
}

static lh_status write_html(cli *c, const cli_view *v, const lh_trace *trace)
{
    const settings *s = c->settings;
    lh_report *report = NULL;
    cli_difference d = {0};
    CLI_TRY(cli_difference_make(c, v->trace, trace, &d));
    CLI_TRY(lh_report_make(c->operands[0], &report, &c->err));
    lh_status status = cli_difference_facts(c, &d, report);
    if (status == LH_OK)
        status = lh_report_add_trace(report, v->trace, "predicted", v->shown,
                                     &c->err);
    if (status == LH_OK)
        status = lh_report_add_trace(report, trace, "measured", NULL, &c->err);
    if (status == LH_OK)
        status = cli_write_html(c, report, s->html);
    lh_report_free(report);
    return status;
}

static lh_status put_results(cli *c, const cli_view *v, const lh_plan *plan,
                             const lh_train_result *r)
{
    const settings *s = c->settings;
    summary sum;
    if (r->elsewhere)
        return LH_OK;
    CLI_TRY(summarise(c, r, &sum));
    if (s->trace && r->trace)
        CLI_TRY(cli_write_trace(c, r->trace, s->trace));
    if (s->html && r->trace)
        CLI_TRY(write_html(c, v, r->trace));
    if (c->common.json)
        return print_json(c, v, plan, r, &sum);
    print_text(c, v, plan, r, &sum);
    return LH_OK;
}

/* --- the command
 * ------------------------------------------------------------------ */

/* A GPU's share of a message of the plan. */
static uint64_t message_bytes_of(cli *c, const lh_plan *plan)
{
    const settings *s = c->settings;
    if (s->message_bytes)
        return s->message_bytes;
    if (!plan)
        return 65536;
    const lh_layout *l = &plan->best.layout;
    uint64_t gpus = (uint64_t)l->tensor * l->context * l->expert;
    int64_t all = lh_cost_message_bytes(plan->job, l);
    return all > 0 && gpus ? ((uint64_t)all + gpus - 1) / gpus : 65536;
}

static lh_status run_view(cli *c, cli_view *v, const lh_plan *plan)
{
    const settings *s = c->settings;
    cli_model model = s->model;
    lh_exec_options with = {.size = sizeof with,
                            .receives = (lh_receives)model.receives,
                            .fifo = model.fifo,
                            .receive_slots = s->buffers};
    lh_exec *exec = NULL;
    lh_train_result *result = NULL;
    CLI_TRY(cli_view_simulate(c, v, &model, c->operands[0]));
    CLI_TRY(lh_exec_make(v->pipeline, v->schedule, &with, &exec, &c->err));
    lh_status status =
        train(c, plan, v->pipeline, exec, message_bytes_of(c, plan), &result);
    if (status == LH_OK)
        status = put_results(c, v, plan, result);
    lh_train_result_free(result);
    lh_exec_free(exec);
    return status;
}

/* The pipeline as it is played: with other delays, faster. Each copy replaces
 * the one before in *own. */
static lh_status change_pipeline(cli *c, cli_view *v, const lh_plan *plan,
                                 lh_pipeline **own)
{
    const settings *s = c->settings;
    lh_pipeline *changed;
    if (s->inject) {
        CLI_TRY(cli_inject(c, s->inject, v->pipeline, message_bytes_of(c, plan),
                           &changed));
        v->pipeline = *own = changed;
    }
    if (s->speed > 1) {
        CLI_TRY(cli_faster(c, v->pipeline, s->speed, &changed));
        lh_pipeline_free(*own);
        v->pipeline = *own = changed;
    }
    return LH_OK;
}

static lh_status run_problem(cli *c, cli_problem *problem, cli_view *v,
                             lh_pipeline **own)
{
    const settings *s = c->settings;
    CLI_TRY(cli_problem_read(c, c->operands[0], false, problem));
    if (s->device == DEVICE_CPU)
        CLI_TRY(check_cpu(c, problem->plan));
    if (s->device == DEVICE_CPU && s->speed > 1)
        return cli_usage(c, "--speed is for the timed device");
    v->pipeline = cli_problem_pipeline(problem);
    v->schedule = s->schedule ? NULL : cli_problem_schedule(problem);
    if (v->schedule)
        v->method = problem->plan->best.layout.schedule;
    else
        CLI_TRY(cli_view_schedule(c, v, s->schedule ? s->schedule : "auto",
                                  &s->model, s->sub_blocks));
    CLI_TRY(change_pipeline(c, v, problem->plan, own));
    return run_view(c, v, problem->plan);
}

static lh_status run(cli *c)
{
    cli_problem problem = {0};
    cli_view view = {0};
    lh_pipeline *injected = NULL;
    lh_status status = run_problem(c, &problem, &view, &injected);
    cli_view_fini(&view);
    lh_pipeline_free(injected);
    cli_problem_fini(&problem);
    return status;
}

const cli_command cmd_train = {
    .name = "train",
    .operands = "PIPELINE|PLAN",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Run a plan, and see how its prediction holds",
    .description =
        "Every device of the pipeline becomes a rank, the schedule an "
        "execution plan (see explain), messages real bytes. On the timed "
        "device passes take the time that the pipeline gives them and links "
        "the delays, so that a job for hundreds of GPUs plays in real time on "
        "one machine.\n\n"
        "The first interrupt (Ctrl-C) ends the run after the iteration, the "
        "second at once; what was done until then is printed all the same, "
        "with exit status 1.",
    .output_help = "Write what would be printed to FILE.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run,
};
