/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/decider.h"

#include "runtime/engine/migration_decider.h"

#include "base/fail.h"
#include "base/options.h"
#include "base/realtime.h"
#include "base/text.h"
#include "resilience/monitor/drift_detector.h"
#include "resilience/monitor/monitor.h"
#include "resilience/monitor/step_scatter.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* State of the latest proposal. */
typedef enum proposal_state {
    NO_PROPOSAL, /* no open proposal */
    DECIDED,     /* decided, not yet proposed to the ranks */
    PROPOSED,    /* proposed to the ranks */
    ACCEPTED,    /* in effect from step `from` on */
    REFUSED
} proposal_state;

/* State of the decider. */
struct lhi_decider {
    const lhi_job *job;
    lh_monitor *monitor; /* NULL: no iteration observed yet */
    lh_adapt *adapt;
    lhi_migration_decider *migration; /* NULL: migration is disabled */
    bool has_switched;                /* the initial plan was replaced */
    uint64_t n_seen;                  /* observed iterations */
    /* Mean of the iterations with the current schedule since the monitor's last
     * event, and their number. */
    double mean_ns;
    uint64_t n_current;
    lhi_step_scatter scatter; /* of the iteration times */
    uint32_t slow_version;    /* last reported slow hosts */
    bool is_move;             /* latest decision is a migration */
    uint32_t n_noticed;
    int64_t cpu_ns;
    char why[LHI_ADAPT_NOTICE_TEXT];  /* reason in the calibration's decision */
    char last[LHI_ADAPT_NOTICE_TEXT]; /* reason in the latest reported decision
                                       */
    /* Protected by `lock`. `proposal` and the data behind it belong to the
     * decision until its verdict is recorded. */
    pthread_mutex_t lock;
    proposal_state answer;
    uint64_t from;
    lh_reschedule proposal;
    lhi_calibration calibration;
    int64_t current_ns; /* current schedule, simulated with calibrated times */
    lhi_adapt_notice *notices;
    uint32_t n_notices;
    char remark[400]; /* "": none */
    bool has_remarked;
};

/* Iterations after which a calibrated prediction is replaced by one from their
 * mean times, as in the second search of lh_adapt_decide(). */
enum { REFINING_ITERATIONS = 12 };

/* --- construction --- */

lh_status lhi_job_make_adapt(const lhi_job *job, const lh_pipeline *pipeline,
                             lh_adapt **out, lh_error *err)
{
    lh_adapt_options o;
    const lh_sim_options sim = lhi_exec_sim_options(job->exec);
    LHI_TRY(LHI_OPTIONS_COPY(lh_adapt_options, &o, job->adapt.decision_options,
                             err));
    if (job->exec->options.path != LH_DATA_PATH_DIRECT)
        return lhi_fail(err, LH_EINVAL,
                        "lh_train_adapt: an adaptive run chooses the data path "
                        "of its messages; it must start on the direct path");
    o.sim = &sim;
    return lh_adapt_make(pipeline, job->exec->schedule, &o, out, err);
}

lh_status lhi_decider_make(const lhi_job *job, lhi_decider **out, lh_error *err)
{
    lhi_decider *d = calloc(1, sizeof *d);
    if (!d)
        return lhi_fail_nomem(err);
    d->job = job;
    pthread_mutex_init(&d->lock, NULL);
    lh_status status = lhi_job_make_adapt(job, job->pipeline, &d->adapt, err);
    if (status == LH_OK && lhi_job_can_migrate(job))
        status = lhi_migration_decider_make(job, &d->migration, err);
    if (status != LH_OK) {
        lhi_decider_free(d);
        return status;
    }
    if (job->n_restarts > 0) { /* slow links may be slow since before it */
        d->has_switched = true;
        lhi_adapt_request_search(d->adapt);
    }
    *out = d;
    return LH_OK;
}

void lhi_decider_free(lhi_decider *d)
{
    if (!d)
        return;
    lh_adapt_free(d->adapt);
    lh_monitor_free(d->monitor);
    lhi_migration_decider_free(d->migration);
    lhi_calibration_fini(&d->calibration);
    pthread_mutex_destroy(&d->lock);
    free(d->notices);
    free(d);
}

/* --- notices --- */

/* Appends a notice (about an event or a decision) to the decider's list; the
 * array doubles when it is full. */
static lh_status add_notice(lhi_decider *d, const lhi_adapt_notice *row,
                            lh_error *err)
{
    pthread_mutex_lock(&d->lock);
    lhi_adapt_notice *more = d->notices;
    if ((d->n_notices & (d->n_notices + 1)) == 0) /* full at 1, 3, 7, ... */
        more = realloc(d->notices,
                       (2 * (size_t)d->n_notices + 1) * sizeof *d->notices);
    if (more) {
        d->notices = more;
        d->notices[d->n_notices++] = *row;
    }
    pthread_mutex_unlock(&d->lock);
    return more ? LH_OK : lhi_fail_nomem(err);
}

/* Formats a duration of `ns` with a unit into `text` (`room` bytes). */
static void format_time(double ns, char *text, size_t room)
{
    if (ns >= 1e9)
        snprintf(text, room, "%.3g s", ns / 1e9);
    else if (ns >= 1e6)
        snprintf(text, room, "%.3g ms", ns / 1e6);
    else
        snprintf(text, room, "%.3g us", ns / 1e3);
}

/* Formats the link, device or data-parallel communication that monitor event
 * `e` is about into `text` (`room` bytes). */
static void format_subject(const lhi_decider *d, const lh_monitor_event *e,
                           char *text, size_t room)
{
    const lh_pipeline *p = d->job->pipeline;
    const lh_link *link =
        e->target == LH_MONITOR_LINK ? &p->links[e->index] : NULL;
    if (link)
        snprintf(text, room, "a message from device %" PRIu32 " to %" PRIu32,
                 link->from, link->to);
    else
        snprintf(text, room, "%s of device %" PRIu32,
                 e->target == LH_MONITOR_DEVICE ? "the passes"
                                                : "the communication",
                 e->index);
}

/* Returns a clause that names an option that would help against event `e` but
 * is not enabled in this run; "" if there is none. */
static const char *describe_disabled_option(const lhi_decider *d,
                                            const lh_monitor_event *e)
{
    const lh_train_adapt *may = &d->job->adapt;
    if (e->cost_ns <= 0)
        return "";
    if (e->target == LH_MONITOR_DATA && !may->moves_hosts)
        return ", of which migrated hosts could save up to all; enable "
               "migration with --moving";
    if (e->target == LH_MONITOR_DEVICE && !may->moves_layers)
        return ", of which migrated layers could save a part; enable migration "
               "with --moving";
    return "";
}

/* Appends a notice that describes a monitor event: what became slower, its
 * times, and the cost per iteration. */
static lh_status report_event(lhi_decider *d, uint64_t step,
                              const lh_monitor_event *e, lh_error *err)
{
    lhi_adapt_notice row = {{.step = step, .event = *e}, "", ""};
    char thing[80], before[24], now[24], cost[24];
    format_subject(d, e, thing, sizeof thing);
    format_time(e->baseline_ns, before, sizeof before);
    format_time(e->current_ns, now, sizeof now);
    format_time((double)e->cost_ns, cost, sizeof cost);
    if (e->change == LH_MONITOR_ENDS)
        snprintf(row.text, sizeof row.text,
                 "from iteration %" PRIu64 " on %s takes %s again",
                 e->first_step, thing, now);
    else if (e->current_ns < e->baseline_ns)
        snprintf(row.text, sizeof row.text,
                 "from iteration %" PRIu64 " on %s takes only %s, instead of "
                 "%s when the run or its last restart began",
                 e->first_step, thing, now, before);
    else
        snprintf(
            row.text, sizeof row.text,
            "from iteration %" PRIu64
            " on %s takes %s instead of %s; this adds %s to an iteration%s",
            e->first_step, thing, now, before,
            e->cost_ns > 0 ? cost : "nothing", describe_disabled_option(d, e));
    d->n_noticed++;
    return add_notice(d, &row, err);
}

/* Stores a remark for the user, once per run: the run continues but no longer
 * adapts, because of error `err`. Later errors mostly have the same cause. */
static void store_remark(lhi_decider *d, const lh_error *err)
{
    pthread_mutex_lock(&d->lock);
    if (!d->has_remarked)
        snprintf(d->remark, sizeof d->remark,
                 "the run continues without adapting to iterations that cannot "
                 "be evaluated: %.300s",
                 err->text);
    d->has_remarked = true;
    pthread_mutex_unlock(&d->lock);
}

/* --- decisions --- */

/* Returns the relative standard error of the mean time of the iterations with
 * the current schedule, to which the monitor's estimates belong. */
static double compute_noise(const lhi_decider *d)
{
    const double n = fmin((double)d->n_current, LHI_DRIFT_AVERAGING);
    return lhi_step_scatter_compute(&d->scatter) / sqrt(fmax(n, 1));
}

/* Appends a notice for the decision `what` to the decider's list. Skips a
 * decision not to switch if `news` is false (no event began, changed or ended)
 * or if its reason equals the last notice's. */
static lh_status report_decision(lhi_decider *d, uint64_t step,
                                 const lh_decision *what, bool news,
                                 lh_error *err)
{
    lhi_adapt_notice row = {{.step = step,
                             .is_decision = true,
                             .is_switch = what->is_switch,
                             .path = what->path,
                             .now_ns = what->current_ns,
                             .predicted_ns = what->predicted_ns,
                             .bound_ns = what->bound_ns},
                            "",
                            ""};
    lhi_text_copy(row.name, sizeof row.name, what->name);
    lhi_text_copy(row.text, sizeof row.text, what->why);
    if (!what->is_switch && (!news || strcmp(row.text, d->last) == 0))
        return LH_OK;
    memcpy(d->last, row.text, sizeof d->last);
    return add_notice(d, &row, err);
}

/* Stores `given` (schedule, data path or migration, borrowed) as the proposal
 * that rank 0 then sends to all ranks. `is_move`: hosts or layers migrate. */
static void store_proposal(lhi_decider *d, const lh_reschedule *given,
                           bool is_move)
{
    pthread_mutex_lock(&d->lock);
    d->proposal = *given;
    d->is_move = is_move;
    d->answer = DECIDED;
    pthread_mutex_unlock(&d->lock);
}

/* Searches for a host or layer migration that is better than the decision
 * `what`. If there is one, stores it as the proposal, rejects the decision and
 * sets *moves. */
static lh_status propose_migration(lhi_decider *d, uint64_t step,
                                   const lh_pipeline *estimated,
                                   const lh_decision *what, bool *moves,
                                   lh_error *err)
{
    const lhi_migration_decider_input seen = {.step = step,
                                              .monitor = d->monitor,
                                              .n_notices = d->n_noticed,
                                              .estimated = estimated,
                                              .decision = what,
                                              .noise = compute_noise(d)};
    lhi_migration_decider_result move;
    lh_decision decision = *what;
    *moves = false;
    if (!d->migration)
        return LH_OK;
    LHI_TRY(lhi_migration_decider_find(d->migration, &seen, &move, moves, err));
    if (!*moves)
        return LH_OK;
    if (what->is_switch)
        LHI_TRY(lh_adapt_confirm(d->adapt, step + 1, false, err));
    decision.is_switch = true;
    decision.name = move.proposal.name;
    decision.path = move.proposal.path;
    decision.current_ns = move.now_ns;
    decision.predicted_ns = move.proposal.predicted_ns;
    decision.why = move.proposal.why;
    LHI_TRY(report_decision(d, step, &decision, true, err));
    store_proposal(d, &move.proposal, true);
    return LH_OK;
}

/* Stores the proposal after step `step`: a host or layer migration if it is
 * better, else the decision `what` if it is a switch. `news`: whether events
 * began, changed or ended. */
static lh_status propose_decision(lhi_decider *d, uint64_t step, bool news,
                                  const lh_pipeline *estimated,
                                  const lh_decision *what, lh_error *err)
{
    bool moves;
    LHI_TRY(propose_migration(d, step, estimated, what, &moves, err));
    if (moves)
        return LH_OK;
    LHI_TRY(report_decision(d, step, what, news, err));
    const lh_reschedule given = {.size = sizeof given,
                                 .schedule = what->schedule,
                                 .name = what->name,
                                 .why = what->why,
                                 .override_path = true,
                                 .path = what->path,
                                 .delegated = what->delegated,
                                 .predicted_ns = what->predicted_ns};
    if (what->is_switch)
        store_proposal(d, &given, false);
    return LH_OK;
}

/* Rejects the switch `what` if it is not faster on this machine: if ranks share
 * processors, calibrated times may not improve although the simulation with one
 * processor per rank does. */
static lh_status reject_shared(lhi_decider *d, uint64_t step, lh_decision *what,
                               lh_error *err)
{
    const lhi_calibration *c = &d->calibration;
    if (!what->is_switch || !c->pipeline ||
        lhi_calibration_predict(c, what->predicted_ns) <
            lhi_calibration_predict(c, what->current_ns))
        return LH_OK;
    what->is_switch = false;
    return lh_adapt_confirm(d->adapt, step + 1, false, err);
}

/* Stores `ns`, the simulated iteration time of the running schedule, from which
 * lhi_decider_predict() predicts iterations. */
static void store_current_time(lhi_decider *d, int64_t ns)
{
    pthread_mutex_lock(&d->lock);
    d->current_ns = ns;
    pthread_mutex_unlock(&d->lock);
}

/* Runs the decision maker on the monitor's current estimate after iteration
 * `step` and stores a proposal if it decides to switch; `news`: events began,
 * changed or ended. Counts its processor time. */
static lh_status decide(lhi_decider *d, uint64_t step, bool news, lh_error *err)
{
    lh_pipeline *estimated = NULL, *shared = NULL;
    const lh_decision *decided;
    lh_decision what = {0};
    LHI_TRY(lh_monitor_pipeline(d->monitor, &estimated, err));
    lh_status status = d->migration ? lhi_migration_decider_make_pipeline(
                                          d->migration, estimated, &shared, err)
                                    : LH_OK;
    lh_adapt_input with = {.size = sizeof with,
                           .pipeline = shared ? shared : estimated,
                           .step = step,
                           .steps_left = d->job->o.steps - step - 1,
                           .noise = compute_noise(d)};
    with.events = lh_monitor_active_events(d->monitor, &with.n_events);
    const int64_t before_ns = lhi_thread_cpu_ns();
    if (status == LH_OK)
        status = lh_adapt_decide(d->adapt, &with, &decided, err);
    if (status == LH_OK) {
        what = *decided;
        status = reject_shared(d, step, &what, err);
    }
    if (status == LH_OK) {
        store_current_time(d, what.current_ns);
        status = propose_decision(d, step, news, estimated, &what, err);
    }
    d->cpu_ns += lhi_thread_cpu_ns() - before_ns;
    lh_pipeline_free(shared);
    lh_pipeline_free(estimated);
    return status;
}

/* --- calibration --- */

/* Decides on a schedule with the times of the pipeline `measured` (in iteration
 * `step`) as permanent times, into *what, and starts the calibration with
 * `whole`. Takes ownership of `measured`. */
static lh_status calibrate_by(lhi_decider *d, lh_pipeline *measured,
                              uint64_t step,
                              const lhi_measured_iteration *whole,
                              lh_decision *what, lh_error *err)
{
    lh_adapt *adapt;
    const lh_adapt_input now = {.size = sizeof now,
                                .pipeline = measured,
                                .step = step,
                                .steps_left = d->job->o.steps - step - 1,
                                .is_permanent = true};
    const lh_decision *first;
    lh_status status = lhi_job_make_adapt(d->job, measured, &adapt, err);
    if (status == LH_OK) {
        lh_adapt_free(d->adapt);
        d->adapt = adapt;
        status = lh_adapt_decide(adapt, &now, &first, err);
    }
    if (status != LH_OK) {
        lh_pipeline_free(measured);
        return status;
    }
    pthread_mutex_lock(&d->lock);
    lhi_calibration_init(&d->calibration, measured, whole, first->current_ns);
    d->current_ns = first->current_ns;
    pthread_mutex_unlock(&d->lock);
    *what = *first;
    return LH_OK;
}

/* Calibrates with the only iteration that the monitor has seen, `step`: reports
 * its times, and proposes the schedule that is best with them. */
static lh_status calibrate(lhi_decider *d, uint64_t step,
                           const lhi_measured_iteration *whole, lh_error *err)
{
    lh_pipeline *measured;
    lh_decision what;
    const int64_t before_ns = lhi_thread_cpu_ns();
    LHI_TRY(lh_monitor_pipeline(d->monitor, &measured, err));
    LHI_TRY(calibrate_by(d, measured, step, whole, &what, err));
    LHI_TRY(reject_shared(d, step, &what, err));
    lhi_calibration_describe(&d->calibration, d->job, whole, d->why,
                             sizeof d->why);
    const size_t used = strlen(d->why);
    snprintf(d->why + used, sizeof d->why - used, "; %s", what.why);
    what.why = d->why;
    d->cpu_ns += lhi_thread_cpu_ns() - before_ns;
    return propose_decision(d, step, true, d->calibration.pipeline, &what, err);
}

/* Processes the ranks' answer to the last proposal: a refusal at once, an
 * acceptance from the first iteration under it. Informs the decision maker, the
 * monitor and the search for migrations. */
static lh_status process_verdict(lhi_decider *d, uint64_t step, lh_error *err)
{
    pthread_mutex_lock(&d->lock);
    const proposal_state was = d->answer;
    const uint64_t from = d->from;
    const lh_reschedule given = d->proposal;
    const bool knows = was == REFUSED || (was == ACCEPTED && step >= from);
    if (knows)
        d->answer = NO_PROPOSAL;
    if (knows && was == ACCEPTED) {
        d->current_ns = given.predicted_ns;
        d->n_current = 0;
    }
    pthread_mutex_unlock(&d->lock);
    if (!knows)
        return LH_OK;
    if (d->is_move) { /* the monitor detects host changes itself */
        bool layers;
        d->has_switched = d->has_switched || was == ACCEPTED;
        LHI_TRY(lhi_migration_decider_record_verdict(
            d->migration, was == ACCEPTED, &layers, err));
        if (layers)
            lhi_adapt_request_search(d->adapt);
        return LH_OK;
    }
    if (was == ACCEPTED) { /* the adaptation owns `proposal` until answered */
        const lh_sim_options how =
            lhi_exec_sim_options_on(d->job->exec, given.path, given.delegated);
        d->has_switched = true;
        LHI_TRY(lhi_monitor_set_schedule_and_path(d->monitor, given.schedule,
                                                  &how, err));
        if (d->migration)
            LHI_TRY(lhi_migration_decider_record_schedule(d->migration, &given,
                                                          err));
    }
    return lh_adapt_confirm(d->adapt, from, was == ACCEPTED, err);
}

/* Checks whether no proposal is open, that is, waiting for the ranks' answer.
 * */
static bool has_no_proposal(lhi_decider *d)
{
    pthread_mutex_lock(&d->lock);
    const bool quiet = d->answer == NO_PROPOSAL;
    pthread_mutex_unlock(&d->lock);
    return quiet;
}

/* Appends a notice that names the slow hosts and links, if they have changed.
 */
static lh_status report_slow_hosts(lhi_decider *d, uint64_t step, lh_error *err)
{
    static const char located[] = "located as slow: ";
    uint32_t version;
    const lhi_slow_hosts *slow = lhi_decider_slow_hosts(d);
    lhi_adapt_notice row = {
        {.step = step, .is_decision = true, .now_ns = d->current_ns}, "", ""};
    if (!slow)
        return LH_OK;
    lhi_slow_hosts_known(slow, &version);
    if (version == d->slow_version)
        return LH_OK;
    d->slow_version = version;
    memcpy(row.text, located, sizeof located);
    lhi_slow_hosts_describe(slow, row.text + sizeof located - 1,
                            sizeof row.text - sizeof located + 1);
    lhi_text_copy(row.name, sizeof row.name, lh_adapt_candidate(0));
    return row.text[sizeof located - 1] ? add_notice(d, &row, err) : LH_OK;
}

/* Adds an iteration's observation to the monitor, reports its events, and
 * decides on a switch if there are events, the run has left its initial
 * schedule, or the calibration is due to be refined. */
static lh_status add_step(lhi_decider *d, const lh_observation *seen,
                          const lhi_measured_iteration *whole, lh_error *err)
{
    uint32_t n_news, n_open;
    LHI_TRY(process_verdict(d, seen->step, err));
    if (d->migration)
        LHI_TRY(lhi_migration_decider_observe(d->migration, seen->step, whole,
                                              err));
    LHI_TRY(report_slow_hosts(d, seen->step, err));
    LHI_TRY(lh_monitor_add(d->monitor, seen, err));
    if (lhi_job_can_calibrate(d->job) && !d->calibration.pipeline)
        return calibrate(d, seen->step, whole, err);
    const lh_monitor_event *news = lhi_monitor_events(d->monitor, &n_news);
    for (uint32_t i = 0; i < n_news; i++)
        LHI_TRY(report_event(d, seen->step, &news[i], err));
    lh_monitor_active_events(d->monitor, &n_open);
    lhi_step_scatter_add(&d->scatter, (double)whole->ns);
    if (n_news > 0) /* earlier iterations had other conditions */
        d->n_current = 0;
    d->mean_ns += ((double)whole->ns - d->mean_ns) / (double)++d->n_current;
    const bool refines =
        d->calibration.pipeline && d->n_seen == REFINING_ITERATIONS;
    /* Otherwise the run follows its initial plan, which was chosen for these
     * conditions. */
    if ((n_news || n_open || d->has_switched || refines) && has_no_proposal(d))
        LHI_TRY(decide(d, seen->step, n_news > 0, err));
    if (refines) {
        pthread_mutex_lock(&d->lock);
        lhi_calibration_refine(&d->calibration, (int64_t)d->mean_ns,
                               d->current_ns);
        pthread_mutex_unlock(&d->lock);
    }
    return LH_OK;
}

lh_status lhi_decider_add_iteration(lhi_decider *d, const lh_observation *seen,
                                    const lhi_measured_iteration *whole,
                                    const uint32_t *clocks, lh_error *err)
{
    lh_error why = {0};
    lh_status status = LH_OK;
    if (d->n_seen++ == 0 && lhi_job_can_calibrate(d->job))
        return LH_OK;
    if (!d->monitor) {
        const lh_sim_options sim = lhi_exec_sim_options(d->job->exec);
        const lh_monitor_options o = {
            .size = sizeof o, .clocks = clocks, .sim = &sim};
        status = lh_monitor_make(d->job->pipeline, d->job->exec->schedule, &o,
                                 &d->monitor, &why);
    }
    if (status == LH_OK)
        status = add_step(d, seen, whole, &why);
    if (status == LH_ENOMEM)
        return lhi_fail_nomem(err);
    if (status != LH_OK)
        store_remark(d, &why);
    return LH_OK;
}

const lhi_slow_hosts *lhi_decider_slow_hosts(const lhi_decider *d)
{
    return d->migration ? lhi_migration_decider_slow_hosts(d->migration) : NULL;
}

int64_t lhi_decider_cpu_ns(const lhi_decider *d)
{
    return d->cpu_ns;
}

/* --- called by the rank's thread --- */

const lh_reschedule *lhi_decider_take_proposal(lhi_decider *d)
{
    pthread_mutex_lock(&d->lock);
    const bool is_new = d->answer == DECIDED;
    if (is_new)
        d->answer = PROPOSED;
    pthread_mutex_unlock(&d->lock);
    return is_new ? &d->proposal : NULL;
}

void lhi_decider_record_verdict(lhi_decider *d, uint64_t step, bool followed)
{
    pthread_mutex_lock(&d->lock);
    d->answer = followed ? ACCEPTED : REFUSED;
    d->from = step;
    pthread_mutex_unlock(&d->lock);
}

int64_t lhi_decider_predict(lhi_decider *d, uint64_t step)
{
    pthread_mutex_lock(&d->lock);
    const bool is_new = d->answer == ACCEPTED && step >= d->from;
    const int64_t ns = lhi_calibration_predict(
        &d->calibration, is_new ? d->proposal.predicted_ns : d->current_ns);
    pthread_mutex_unlock(&d->lock);
    return ns;
}

bool lhi_decider_get_notice(lhi_decider *d, uint32_t i, lhi_adapt_notice *out)
{
    pthread_mutex_lock(&d->lock);
    const bool is_there = i < d->n_notices;
    if (is_there)
        *out = d->notices[i];
    pthread_mutex_unlock(&d->lock);
    return is_there;
}

bool lhi_decider_take_remark(lhi_decider *d, char *text, size_t room)
{
    pthread_mutex_lock(&d->lock);
    const bool is_there = d->remark[0] != 0;
    if (is_there)
        lhi_text_copy(text, room, d->remark);
    d->remark[0] = 0;
    pthread_mutex_unlock(&d->lock);
    return is_there;
}
