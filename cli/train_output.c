/* SPDX-License-Identifier: Apache-2.0 */
#include "train_internal.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- iterations --------------------------------------------------------- */

/* Returns a number as JSON, or null if it is not finite. */
static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

double train_tokens_per_s(const lh_iteration *it)
{
    return it->ns > 0 ? (double)it->tokens * 1e9 / (double)it->ns : 0;
}

json_t *train_iteration_json(const lh_iteration *it,
                             const train_iteration_context *at)
{
    json_t *j = json_pack("{s:I, s:f, s:o, s:s, s:s, s:o}", "step",
                          (json_int_t)it->step, "seconds", (double)it->ns / 1e9,
                          "loss", number_or_null(it->loss), "schedule",
                          at->schedule, "path", at->path, "slow",
                          cli_slow_json(at->event_timeline, it->step));
    const int64_t predicted_ns =
        it->predicted_ns > 0 ? it->predicted_ns : at->predicted_ns;
    if (j && predicted_ns > 0)
        json_object_set_new(j, "predicted_s", cli_seconds(predicted_ns));
    if (j && isfinite(it->loss)) {
        json_object_set_new(j, "gradient_norm",
                            number_or_null(it->gradient_norm));
        json_object_set_new(j, "rate", number_or_null(it->learning_rate));
        json_object_set_new(j, "tokens_per_s",
                            json_real(train_tokens_per_s(it)));
        if (isfinite(it->mtp_loss))
            json_object_set_new(j, "mtp_loss", json_real(it->mtp_loss));
        if (isfinite(it->validation_loss))
            json_object_set_new(j, "validation_loss",
                                json_real(it->validation_loss));
    } else if (j) {
        json_object_set_new(j, "slips",
                            json_integer((json_int_t)it->missed_deadlines));
    }
    return j;
}

/* --- schedule switches -------------------------------------------------- */

json_t *train_switch_json(const lh_switch *what, const char *from,
                          const char *path, json_t *moved)
{
    return json_pack("{s:o, s:I, s:s, s:s, s:s, s:o, s:s, s:o}", "moved", moved,
                     "step", (json_int_t)what->step, "from", from, "to",
                     what->to, "path", path, "predicted_s",
                     what->predicted_ns > 0 ? cli_seconds(what->predicted_ns)
                                            : json_null(),
                     "why", what->why, "refused",
                     what->refused ? json_string(what->refused) : json_null());
}

const char *train_schedule_name_at(const cli_view *v, const lh_train_result *r,
                                   uint64_t step, bool before)
{
    uint32_t n;
    const lh_switch *rows = lh_train_switches(r, &n);
    const char *name = v->method;
    for (uint32_t i = 0; i < n && rows[i].step + before <= step; i++)
        if (!rows[i].refused)
            name = train_schedule_name(v, rows[i].to);
    return name;
}

const char *train_last_schedule_name(const cli_view *began,
                                     const lh_train_result *r)
{
    return train_schedule_name_at(began, r, train_last_step(r), false);
}

const char *train_path_name_at(cli *c, const lh_train_result *r, uint64_t step)
{
    uint32_t n;
    const lh_switch *rows = lh_train_switches(r, &n);
    const char *path = train_path_name(c, LH_DATA_PATH_DIRECT);
    for (uint32_t i = 0; i < n && rows[i].step <= step; i++)
        if (!rows[i].refused)
            path = train_path_name(c, rows[i].path);
    return path;
}

/* Returns the run's schedule and data path switches as a JSON list; NULL: out
 * of memory. */
static json_t *switches_json(cli *c, const cli_view *v,
                             const lh_train_result *r)
{
    uint32_t n;
    const lh_switch *rows = lh_train_switches(r, &n);
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++) {
        lh_switch shown = rows[i];
        shown.to = train_schedule_name(v, shown.to);
        json_t *one = train_switch_json(
            &shown, train_schedule_name_at(v, r, rows[i].step, true),
            train_path_name(c, rows[i].path),
            train_migration_json(lh_train_migration(r, i)));
        if (!one || json_array_append_new(list, one)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Prints the run's schedule switches, applied or refused. Returns whether any
 * was applied, so that predicted and measured times cover only the last
 * schedule. */
static bool print_switches(cli *c, const cli_view *v, const lh_train_result *r)
{
    static const char *const path_words[] = {
        "", " with all messages delegated",
        " with the messages of some links delegated"};
    bool any = false;
    uint32_t n;
    char a[CLI_TIME_TEXT];
    const lh_switch *rows = lh_train_switches(r, &n);
    for (uint32_t i = 0; i < n; i++) {
        any = any || (!rows[i].refused && rows[i].step <= train_last_step(r));
        if (lh_train_migration(r, i))
            train_migration_print(c, rows[i].step, lh_train_migration(r, i));
        if (rows[i].refused)
            cli_wrap(c, "refused", "%s from iteration %" PRIu64 " on: %s",
                     train_schedule_name(v, rows[i].to), rows[i].step,
                     rows[i].refused);
        else if (!lh_train_migration(r, i) ||
                 strcmp(train_schedule_name_at(v, r, rows[i].step, true),
                        train_schedule_name(v, rows[i].to)) != 0)
            cli_wrap(c, "switched",
                     "to %s%s from iteration %" PRIu64 " on; simulated time of "
                     "its passes %s",
                     train_schedule_name(v, rows[i].to),
                     path_words[rows[i].path], rows[i].step,
                     cli_time_text(rows[i].predicted_ns, a));
    }
    return any;
}

/* --- run ---------------------------------------------------------------- */

/* Returns the run's iterations with schedule, data path and predicted time as
 * a JSON list; NULL: out of memory. */
static json_t *make_iterations_json(cli *c, const cli_view *v,
                                    const train_changes *changes,
                                    const int64_t *predicted_ns,
                                    const lh_train_result *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < r->n_iterations; i++) {
        const lh_iteration *it = &r->iterations[i];
        const train_iteration_context at = {
            .schedule = train_schedule_name_at(v, r, it->step, false),
            .path = train_path_name_at(c, r, it->step),
            .event_timeline = changes->event_timeline,
            .predicted_ns = predicted_ns ? predicted_ns[i] : 0};
        json_t *one = train_iteration_json(it, &at);
        if (!one || json_array_append_new(list, one)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Returns the total time of all iterations, in ns. */
static int64_t sum_times(const lh_train_result *r)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < r->n_iterations; i++)
        sum += r->iterations[i].ns;
    return sum;
}

static const char *const exchanges[LH_N_TRAIN_GROUPS] = {
    [LH_TRAIN_GROUP_TENSOR] = "tensor",
    [LH_TRAIN_GROUP_CONTEXT] = "context",
    [LH_TRAIN_GROUP_EXPERT] = "expert",
    [LH_TRAIN_GROUP_EXPERT_TENSOR] = "expert_tensor",
};

/* Checks whether the run was aborted: then the ranks have not exchanged their
 * memory and communication statistics. */
static bool was_aborted(const lh_train_result *r)
{
    uint32_t n;
    lh_train_peak_memory(r, &n);
    return n == 0;
}

/* Prints the data sent between tensor- or expert-parallel ranks within passes.
 */
static void print_exchanges(cli *c, const lh_train_result *r)
{
    char a[CLI_TIME_TEXT], text[300];
    int64_t all = 0;
    size_t at = 0;
    if (was_aborted(r) && r->planned_exchange_ns > 0)
        cli_wrap(c, "exchanges",
                 "per rank and iteration: planned %s; unknown for an aborted "
                 "run",
                 cli_time_text(r->planned_exchange_ns, a));
    for (uint32_t k = 0; k < LH_N_TRAIN_GROUPS; k++) {
        all += r->exchange_ns[k];
        if (r->exchange_ns[k] > 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %s",
                                   at ? ", " : "", exchanges[k],
                                   cli_time_text(r->exchange_ns[k], a));
    }
    if (all == 0)
        return;
    if (r->planned_exchange_ns > 0)
        snprintf(text + at, sizeof text - at, "; planned %s",
                 cli_time_text(r->planned_exchange_ns, a));
    cli_wrap(c, "exchanges",
             "per rank and iteration, including waits for other ranks: %s",
             text);
}

/* Prints the activation offloading cost: the copies' predicted and measured
 * time, and storage. */
static void print_copies(cli *c, const lh_train_result *r)
{
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT], w[CLI_TIME_TEXT];
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    int64_t stored = 0;
    for (uint32_t i = 0; i < n; i++)
        stored += all[i].measured[LH_MEMORY_STORAGE];
    if (r->predicted_copy_ns > 0 && was_aborted(r))
        cli_wrap(c, "offload",
                 "copies per rank and iteration: predicted %s; unknown for an "
                 "aborted run",
                 cli_time_text(r->predicted_copy_ns, a));
    else if (r->predicted_copy_ns > 0)
        cli_wrap(c, "offload",
                 "copies per rank and iteration: predicted %s, measured %s; "
                 "passes waited %s for them; %.1f MiB in files",
                 cli_time_text(r->predicted_copy_ns, a),
                 cli_time_text(r->copy_ns, b),
                 cli_time_text(r->copy_wait_ns, w), (double)stored / (1 << 20));
}

/* Returns the offload copies' predicted and measured time in seconds as JSON;
 * measured ones are null after an abort. */
static json_t *copies_json(const lh_train_result *r)
{
    const bool known = !was_aborted(r);
    return json_pack("{s:o, s:o, s:o}", "predicted",
                     cli_seconds(r->predicted_copy_ns), "measured",
                     known ? cli_seconds(r->copy_ns) : json_null(), "waited",
                     known ? cli_seconds(r->copy_wait_ns) : json_null());
}

/* Returns the time in the collectives of each process group as a JSON object,
 * in seconds; JSON null after an abort. */
static json_t *exchanges_json(const lh_train_result *r)
{
    json_t *all = json_object();
    for (uint32_t k = 0; k < LH_N_TRAIN_GROUPS; k++)
        json_object_set_new(all, exchanges[k],
                            was_aborted(r) ? json_null()
                                           : cli_seconds(r->exchange_ns[k]));
    json_object_set_new(all, "planned", cli_seconds(r->planned_exchange_ns));
    return all;
}

/* Checks whether the run has written a checkpoint of its last iteration: each
 * run with --checkpoint does unless it was aborted. */
static bool has_checkpoint(const cli *c, const lh_train_result *r)
{
    const train_settings *s = c->settings;
    return s->checkpoint && r->n_iterations > 0 && !was_aborted(r);
}

/* Returns the checkpoint of the last iteration as JSON: its step and folder;
 * null: none was written. */
static json_t *checkpoint_json(cli *c, const lh_train_result *r)
{
    const train_settings *s = c->settings;
    return has_checkpoint(c, r)
               ? json_pack("{s:I, s:o}", "step",
                           (json_int_t)train_last_step(r) + 1, "folder",
                           json_string(cli_utf8_name(c, s->checkpoint)))
               : json_null();
}

/* Prints the run's result as JSON: iterations, switches, memory and statistics.
 * predicted_ns: per iteration; NULL without events. */
static lh_status print_json(cli *c, const cli_view *v, const lh_plan *plan,
                            const train_changes *changes,
                            const int64_t *predicted_ns,
                            const lh_train_result *r)
{
    const train_settings *s = c->settings;
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:I, s:o, s:o, "
        "s:o, s:b, s:o, "
        "s:o, s:o, s:o}",
        "device", train_devices[s->device], "transport",
        train_transports[s->transport], "schedule", v->method, "ranks",
        (json_int_t)r->n_ranks, "replicas", (json_int_t)r->n_replicas, "tensor",
        (json_int_t)r->tensor, "context", (json_int_t)r->context, "expert",
        (json_int_t)r->expert, "clock",
        s->device == LH_TRAIN_CPU ? "real" : "deadlines", "receives",
        cli_receives_of(&s->model, v->pipeline), "coupled",
        (json_int_t)s->model.coupled, "predicted_s",
        cli_seconds(r->predicted_ns), "median_s",
        r->n_iterations ? cli_seconds(r->median_ns) : json_null(), "error",
        r->n_iterations ? json_real(r->error) : json_null(), "interrupted",
        (int)r->interrupted, "iterations",
        make_iterations_json(c, v, changes, predicted_ns, r), "switches",
        switches_json(c, v, r), "total_s", cli_seconds(sum_times(r)),
        "restarts", train_restarts_json(r));
    if (j)
        json_object_set_new(j, "elapsed_s",
                            cli_seconds(changes->clock.elapsed_ns));
    if (j && s->device == LH_TRAIN_CPU) {
        json_object_set_new(j, "checkpoint", checkpoint_json(c, r));
        json_object_set_new(j, "other_processors",
                            s->transport <= TRAIN_LOCAL
                                ? number_or_null(changes->clock.others)
                                : json_null());
        json_object_set_new(j, "mfu",
                            r->utilisation >= 0 ? json_real(r->utilisation)
                                                : json_null());
        json_object_set_new(j, "unshared_s", cli_seconds(r->unshared_ns));
        json_object_set_new(j, "shared_processors",
                            r->n_processors
                                ? json_integer((json_int_t)r->n_processors)
                                : json_null());
        json_object_set_new(j, "exchanges_s", exchanges_json(r));
        json_object_set_new(j, "copies_s", copies_json(r));
        json_object_set_new(j, "memory",
                            train_memory_json(plan, v->pipeline, r));
    } else if (j) {
        json_object_set_new(j, "speed", json_integer(s->speed));
        json_object_set_new(j, "slips",
                            json_integer((json_int_t)r->missed_deadlines));
        json_object_set_new(j, "worst_late_s", cli_seconds(r->max_lateness_ns));
    }
    if (j && s->adapt && train_notices_json(c, v, r, j) != LH_OK) {
        json_decref(j);
        return LH_ENOMEM;
    }
    return cli_put_json(c, j);
}

void train_prediction_text(cli *c, const lh_plan *plan,
                           const lh_train_result *r,
                           char text[TRAIN_PREDICTION_TEXT])
{
    const train_settings *s = c->settings;
    const size_t room = TRAIN_PREDICTION_TEXT;
    char a[CLI_TIME_TEXT];
    size_t len =
        (size_t)snprintf(text, room, "%s", cli_time_text(r->predicted_ns, a));
    if (s->device != LH_TRAIN_CPU)
        return;
    len +=
        (size_t)snprintf(text + len, room - len, ", %s",
                         r->is_calibrated ? "from passes measured in this run"
                                          : cli_time_source_text(plan));
    if (r->n_processors)
        len += (size_t)snprintf(
            text + len, room - len,
            ", where %" PRIu32 " ranks share %" PRIu32 " processor%s",
            r->n_ranks, r->n_processors, r->n_processors > 1 ? "s" : "");
    if (r->predicted_ns != r->unshared_ns)
        snprintf(text + len, room - len, "; %s if each had its own",
                 cli_time_text(r->unshared_ns, a));
}

void train_measured_text(const lh_train_result *r,
                         char text[TRAIN_PREDICTION_TEXT])
{
    char a[CLI_TIME_TEXT];
    uint32_t n;
    const lh_switch *rows = lh_train_switches(r, &n);
    bool has_switched = false;
    for (uint32_t i = 0; i < n; i++)
        has_switched = has_switched ||
                       (!rows[i].refused && rows[i].step <= train_last_step(r));
    snprintf(text, TRAIN_PREDICTION_TEXT, "%s (median%s), %+.2f %%",
             cli_time_text(r->median_ns, a),
             has_switched ? " with the last schedule" : "",
             cli_round_for_text(100 * r->error, 2));
}

/* Prints predicted and measured iteration time. */
static void print_prediction(cli *c, const lh_plan *plan,
                             const lh_train_result *r)
{
    char text[TRAIN_PREDICTION_TEXT];
    train_prediction_text(c, plan, r, text);
    cli_wrap(c, "predicted", "%s", text);
    train_measured_text(r, text);
    cli_wrap(c, "measured", "%s", text);
}

/* Prints predicted and measured iteration time for a run with emulated passes,
 * and by how much passes began after their predicted start. */
static void print_timed(cli *c, const lh_plan *plan, const lh_train_result *r)
{
    const train_settings *s = c->settings;
    char a[CLI_TIME_TEXT];
    print_prediction(c, plan, r);
    cli_wrap(
        c, "clock",
        "passes follow the predicted times%s: the difference shows how well "
        "this machine kept up, not the accuracy of the prediction",
        s->real_links ? ", messages use the real network"
                      : ", messages those of the emulated links");
    cli_print(c, "lateness      %s at worst",
              cli_time_text(r->max_lateness_ns, a));
    if (r->missed_deadlines)
        cli_print(c, "; %" PRIu64 " pass%s began too late to end in time",
                  r->missed_deadlines, r->missed_deadlines == 1 ? "" : "es");
    cli_print(c, "\n");
}

bool train_load_text(const cli *c, const train_clock *clock,
                     const lh_train_result *r, char text[TRAIN_PREDICTION_TEXT])
{
    const train_settings *s = c->settings;
    const bool is_disturbed = s->device == LH_TRAIN_CPU &&
                              s->transport <= TRAIN_LOCAL &&
                              train_clock_is_disturbed(clock, r);
    if (is_disturbed)
        snprintf(text, TRAIN_PREDICTION_TEXT,
                 "other programs used %.1f of this machine's processors: the "
                 "prediction is for a machine without them",
                 clock->others);
    return is_disturbed;
}

void train_elapsed_text(const train_clock *clock, const lh_train_result *r,
                        char text[TRAIN_PREDICTION_TEXT])
{
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT];
    snprintf(text, TRAIN_PREDICTION_TEXT, "%s, of which all iterations took %s",
             cli_time_text(clock->elapsed_ns, a),
             cli_time_text(sum_times(r), b));
}

/* Prints the checkpoint of the last iteration, and how to continue from it. */
static void print_checkpoint(cli *c, const lh_train_result *r)
{
    const train_settings *s = c->settings;
    if (has_checkpoint(c, r))
        cli_wrap(c, "checkpoint",
                 "step %" PRIu64 " in %s: continue with --resume%s",
                 train_last_step(r) + 1, s->checkpoint,
                 r->interrupted ? "" : " and more --steps");
}

/* Prints losses, predicted and measured times, rate and communication for a run
 * that trains a model. */
static void print_trained(cli *c, const lh_plan *plan, const lh_train_result *r)
{
    const lh_iteration *first = &r->iterations[0];
    const lh_iteration *last = &r->iterations[r->n_iterations - 1];
    char a[CLI_TIME_TEXT];
    cli_print(c,
              "loss          %.4f at step %" PRIu64 ", %.4f at step "
              "%" PRIu64 "\n",
              first->loss, first->step + 1, last->loss, last->step + 1);
    if (isfinite(last->mtp_loss))
        cli_print(c,
                  "of mtp_layers %.4f at step %" PRIu64 ", %.4f at step "
                  "%" PRIu64 "\n",
                  first->mtp_loss, first->step + 1, last->mtp_loss,
                  last->step + 1);
    for (uint32_t i = r->n_iterations; i-- > 0;)
        if (isfinite(r->iterations[i].validation_loss)) {
            cli_print(c, "validation    %.4f after step %" PRIu64 "\n",
                      r->iterations[i].validation_loss,
                      r->iterations[i].step + 1);
            break;
        }
    print_prediction(c, plan, r);
    cli_print(
        c, "iteration     %s: %.0f tokens/s", cli_time_text(r->median_ns, a),
        r->median_ns > 0 ? (double)last->tokens * 1e9 / (double)r->median_ns
                         : 0.0);
    if (r->utilisation >= 0)
        cli_print(c, ", %.1f %% of the plan's peak FLOPs",
                  100 * r->utilisation);
    cli_print(c, "\n");
    print_exchanges(c, r);
    print_copies(c, r);
    print_checkpoint(c, r);
}

/* Prints the schedule and the ranks by stages, replicas and degrees. */
static void print_ranks(cli *c, const cli_view *v, const lh_plan *plan,
                        const lh_train_result *r)
{
    static const lh_layout alone = {
        .data = 1, .context = 1, .tensor = 1, .expert = 1};
    const lh_layout *l = plan ? &plan->best.layout : &alone;
    const uint32_t together = r->context * r->tensor;
    const bool differ = l->site_tensors != NULL;
    const uint32_t stages = differ ? lh_pipeline_n_devices(v->pipeline)
                                   : r->n_ranks / (r->n_replicas * together);
    char tensor[CLI_SITE_TENSORS_TEXT] = "1";
    if (plan)
        cli_site_tensors_text(plan, tensor);
    cli_print(c, "schedule      %s on ", v->method);
    if (together > 1)
        cli_print(c,
                  "%" PRIu32 " ranks: %" PRIu32 " stages x %" PRIu32
                  " replicas x context %" PRIu32 " x tensor %s",
                  r->n_ranks, stages, r->n_replicas, r->context, tensor);
    else if (r->n_replicas > 1)
        cli_print(
            c, "%" PRIu32 " ranks: %" PRIu32 " stages x %" PRIu32 " replicas",
            r->n_ranks, stages, r->n_replicas);
    else if (l->context * l->tensor > 1 || differ)
        cli_print(c,
                  "%" PRIu32 " ranks: one copy of %" PRIu32 " replicas x "
                  "context %" PRIu32 " x tensor %s",
                  stages, l->data, l->context, tensor);
    else if (l->data > 1)
        cli_print(c, "%" PRIu32 " ranks: one of %" PRIu32 " replicas", stages,
                  l->data);
    else
        cli_print(c, "%" PRIu32 " ranks", stages);
    if (l->expert > 1)
        cli_print(c, ", expert %" PRIu32, l->expert);
}

/* Prints the number of iterations with events, and the total measured time
 * beside the predicted one. predicted_ns: per iteration; NULL for an adaptive
 * run, which has no prediction. */
static void print_events(cli *c, const lh_event_timeline *timeline,
                         const int64_t *predicted_ns, const lh_train_result *r)
{
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT];
    uint32_t n = 0;
    int64_t sum = 0;
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        n += lh_event_timeline_state(timeline, r->iterations[i].step) != 0;
        sum += predicted_ns ? predicted_ns[i] : 0;
    }
    if (!predicted_ns) {
        cli_wrap(c, "events",
                 "in %" PRIu32 " of %" PRIu32
                 " iterations; total of all iterations %s measured",
                 n, r->n_iterations, cli_time_text(sum_times(r), b));
        return;
    }
    cli_wrap(c, "events",
             "in %" PRIu32 " of %" PRIu32
             " iterations; total of all iterations %s predicted, %s measured",
             n, r->n_iterations, cli_time_text(sum, a),
             cli_time_text(sum_times(r), b));
}

/* Prints the run's result as text: ranks, times against the prediction, losses,
 * switches and memory. predicted_ns: per iteration; NULL without events. */
static void print_text(cli *c, const cli_view *v, const lh_plan *plan,
                       const train_changes *changes,
                       const int64_t *predicted_ns, const lh_train_result *r)
{
    const train_settings *s = c->settings;
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT];
    print_ranks(c, v, plan, r);
    cli_print(c, ", %s over %s", train_devices[s->device],
              train_transports[s->transport]);
    if (s->speed > 1)
        cli_print(c, ", %" PRIu32 " times as fast", s->speed);
    cli_print(c, "\n");
    if (s->path)
        cli_wrap(c, "path",
                 "%s: messages%s are copied to host memory and sent from "
                 "there, %s a copy",
                 changes->path, s->model.delegated ? " of some links" : "",
                 s->staging_ns ? cli_time_text(s->staging_ns / s->speed, a)
                               : "no time");
    if (s->model.coupled)
        cli_print(c,
                  "path          direct: passes block behind %" PRIu32
                  " message%s on %s way, receives %s\n",
                  s->model.coupled, s->model.coupled > 1 ? "s" : "",
                  s->model.coupled > 1 ? "their" : "its",
                  cli_receives_of(&s->model, v->pipeline));
    if (s->adapt)
        train_notices_print(c, r);
    const bool switched = print_switches(c, v, r);
    cli_print(c, "iterations    %" PRIu32 "%s", r->n_iterations,
              r->interrupted ? ", interrupted" : "");
    if (r->n_iterations)
        cli_print(c, "%s, %s to %s", switched ? "; with the last schedule" : "",
                  cli_time_text(r->min_ns, a), cli_time_text(r->max_ns, b));
    else if (s->resume && !r->interrupted)
        cli_print(c,
                  ": the checkpoint already has --steps iterations (%" PRIu32
                  "), counted from the start of the first run",
                  s->steps);
    cli_print(c, "\n");
    char text[TRAIN_PREDICTION_TEXT];
    if (train_restarts_text(r, text))
        cli_wrap(c, "restarts", "%s", text);
    train_elapsed_text(&changes->clock, r, text);
    cli_wrap(c, "elapsed", "%s", text);
    if (train_load_text(c, &changes->clock, r, text))
        cli_wrap(c, "load", "%s", text);
    if (s->events && r->n_iterations)
        print_events(c, changes->event_timeline, predicted_ns, r);
    if (r->n_iterations && s->device == LH_TRAIN_CPU)
        print_trained(c, plan, r);
    else if (r->n_iterations)
        print_timed(c, plan, r);
    if (r->n_iterations && cli_is_given(c, "memory"))
        train_memory_print(c, plan, v->pipeline, r);
}

/* Writes the measured profile to the --profile-out file. */
static lh_status write_profile(cli *c, const lh_profile *profile)
{
    const train_settings *s = c->settings;
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_profile_format(profile, &text, &len, &c->err));
    return cli_write_text(c, s->profile_out, text, len);
}

/* Reports that an output file was not written: the passes of the last iteration
 * are not recorded. The exit status is then 1, unless no iteration was left to
 * run. */
static void report_not_written(cli *c, const lh_train_result *r,
                               const char *path)
{
    const bool has_run = r->n_iterations > 0;
    cli_progress_end();
    cli_print_stderr("%s: not written: %s", path,
                     has_run ? "the passes of the last iteration are not "
                               "recorded, because other ranks ran a lost "
                               "rank's microbatches in it, or the run ended "
                               "after a restart without an iteration"
                             : "the run has completed no iteration");
    if (has_run)
        c->exit_code = EXIT_FAILED;
}

lh_status train_write_results(cli *c, const cli_view *v, const cli_view *last,
                              const lh_plan *plan, const train_changes *changes,
                              const int64_t *predicted_ns,
                              const lh_train_result *r)
{
    const train_settings *s = c->settings;
    if (r->is_on_other_process)
        return LH_OK;
    if (s->trace && r->trace)
        CLI_TRY(cli_write_trace(c, r->trace, s->trace));
    else if (s->trace)
        report_not_written(c, r, s->trace);
    if (s->html && r->n_iterations)
        CLI_TRY(train_write_html(c, v, last, plan, changes, predicted_ns, r));
    else if (s->html)
        report_not_written(c, r, s->html);
    if (s->svg && r->n_iterations)
        CLI_TRY(train_draw_iterations(c, v, changes->event_timeline,
                                      predicted_ns, r, NULL));
    else if (s->svg)
        report_not_written(c, r, s->svg);
    if (s->profile_out && r->profile)
        CLI_TRY(write_profile(c, r->profile));
    else if (s->profile_out)
        cli_note(c, "%s: not written: no iteration was measured",
                 s->profile_out);
    if (c->common.json)
        return print_json(c, v, plan, changes, predicted_ns, r);
    print_text(c, v, plan, changes, predicted_ns, r);
    return LH_OK;
}
