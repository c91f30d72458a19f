/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/monitor/monitor_internal.h"

#include "base/fail.h"
#include "base/options.h"
#include "base/sort.h"
#include "resilience/monitor/monitor.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/schedule_internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* Calibration iterations without events: default and minimum. */
enum { DEFAULT_WARM_UP = 8, MIN_WARM_UP = 4 };
/* Largest accepted absolute time: differences of two times fit into 64 bits. */
#define MOST_NS (INT64_C(1) << 61)

/* --- names ---------------------------------------------------------------- */

/* Returns the name of a kind of monitored target, as in output: a link, a
 * device, or a device's data-parallel communication; static storage. */
const char *lh_monitor_target_name(lh_monitor_target what)
{
    static const char *const names[] = {"link", "device", "data"};
    return names[what];
}

const char *lh_monitor_change_name(lh_monitor_change change)
{
    static const char *const names[] = {"begins", "changes", "ends"};
    return names[change];
}

/* --- construction --------------------------------------------------------- */

/* Compares two pairs of clock numbers by the first, then the second number, for
 * qsort() and bsearch(). */
static int compare_pairs(const void *a, const void *b)
{
    const lhi_clock_pair *x = a, *y = b;
    int first = (x->a > y->a) - (x->a < y->a);
    return first ? first : (x->b > y->b) - (x->b < y->b);
}

/* Returns the clock numbers (clocks[device]) at a link's two ends, the lower
 * number first. */
static lhi_clock_pair get_clock_pair(const lh_link *link,
                                     const uint32_t *clocks)
{
    uint32_t a = clocks[link->from], b = clocks[link->to];
    return (lhi_clock_pair){.a = a < b ? a : b, .b = a < b ? b : a};
}

/* Lists each pair of different clocks that some link joins, once, in m->pairs;
 * clocks[device]: number of its clock. */
static lh_status list_clock_pairs(lh_monitor *m, const uint32_t *clocks,
                                  lh_error *err)
{
    const lh_pipeline *p = m->pipeline;
    uint32_t n = 0;
    m->pairs = calloc((size_t)p->n_links + 1, sizeof *m->pairs);
    if (!m->pairs)
        return lhi_fail_nomem(err);
    for (uint32_t l = 0; l < p->n_links; l++) {
        m->links[l].pair = LH_NONE;
        if (clocks && clocks[p->links[l].from] != clocks[p->links[l].to])
            m->pairs[n++] = get_clock_pair(&p->links[l], clocks);
    }
    lhi_sort(m->pairs, n, sizeof *m->pairs, compare_pairs);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || compare_pairs(&m->pairs[i - 1], &m->pairs[i]) != 0)
            m->pairs[m->n_pairs++] = m->pairs[i];
    for (uint32_t l = 0; l < p->n_links; l++) {
        if (!clocks || clocks[p->links[l].from] == clocks[p->links[l].to])
            continue;
        lhi_clock_pair key = get_clock_pair(&p->links[l], clocks);
        const lhi_clock_pair *found = bsearch(&key, m->pairs, m->n_pairs,
                                              sizeof *m->pairs, compare_pairs);
        m->links[l].pair = (uint32_t)(found - m->pairs);
        m->links[l].is_reversed = clocks[p->links[l].from] == key.b;
    }
    return LH_OK;
}

/* Stores the pipeline's link delays, pass times and collective times as the
 * nominal values of the monitored links and series (kinds of pass or collective
 * per chunk). */
static void store_nominal(lh_monitor *m)
{
    const lh_pipeline *p = m->pipeline;
    for (uint32_t l = 0; l < p->n_links; l++)
        m->links[l].nominal_ns =
            (double)p->links[l].latency_ns + (double)p->links[l].transfer_ns;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *chunk = &p->chunks[c];
        const double ns[LHI_N_SERIES] = {
            [LH_F] = (double)chunk->f_ns,
            [LH_D] = (double)chunk->d_ns,
            [LH_W] = (double)chunk->w_ns,
            [LH_B] = (double)(chunk->d_ns + chunk->w_ns),
            [LHI_GATHERS] =
                (double)(chunk->all_gather_ns + chunk->dp_latency_ns),
            [LHI_SCATTERS] =
                (double)(chunk->reduce_scatter_ns + chunk->dp_latency_ns),
        };
        for (uint32_t k = 0; k < LHI_N_SERIES; k++)
            lhi_monitor_series(m, c, k)->nominal_ns = ns[k];
    }
}

/* Allocates the monitor's arrays for links, devices, series and events; the
 * monitor owns them. */
static lh_status allocate(lh_monitor *m, lh_error *err)
{
    const lh_pipeline *p = m->pipeline;
    size_t quantities = (size_t)p->n_links + 2 * (size_t)p->n_devices;
    m->links = calloc((size_t)p->n_links + 1, sizeof *m->links);
    m->work = calloc(p->n_devices, sizeof *m->work);
    m->data = calloc(p->n_devices, sizeof *m->data);
    m->first = calloc((size_t)p->n_links + p->n_resources +
                          (size_t)p->n_chunks * LHI_N_SERIES,
                      sizeof *m->first);
    m->busy = calloc(p->n_devices, sizeof *m->busy);
    m->series = calloc((size_t)p->n_chunks * LHI_N_SERIES, sizeof *m->series);
    m->news = calloc(quantities, sizeof *m->news);
    m->active = calloc(quantities, sizeof *m->active);
    if (!m->links || !m->work || !m->data || !m->first || !m->busy ||
        !m->series || !m->news || !m->active)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < p->n_devices; d++)
        m->work[d].slowdown = m->data[d].slowdown = 1;
    return LH_OK;
}

/* Simulates the iteration with all links and devices at their normal levels,
 * and stores its time for comparisons. */
static lh_status simulate_normal(lh_monitor *m, lh_error *err)
{
    int64_t ns;
    LHI_TRY(lhi_monitor_simulate(m, NULL, true, &ns, err));
    m->iteration_ns = (double)ns;
    return LH_OK;
}

/* Copies the flags of delegated links (whose messages are sent by a helper
 * thread through host memory) from the simulator's options into the monitor,
 * because the caller's array may not outlive the call. */
static lh_status copy_paths(lh_monitor *m, uint32_t n_links, lh_error *err)
{
    if (!m->sim.delegated)
        return LH_OK;
    bool *copy = calloc((size_t)n_links + 1, sizeof *copy);
    if (!copy)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n_links; i++)
        copy[i] = m->sim.delegated[i];
    m->sim.delegated = m->delegated = copy;
    return LH_OK;
}

/* Checks the options, copies pipeline and schedule into the monitor `m`, and
 * simulates the iteration time without slowdowns. */
static lh_status set_up(lh_monitor *m, const lh_pipeline *pipeline,
                        const lh_schedule *schedule,
                        const lh_monitor_options *o, lh_error *err)
{
    if (o->warm_up > 0 && o->warm_up < MIN_WARM_UP)
        return lhi_fail(
            err, LH_EINVAL,
            "a monitor requires at least %d warm-up iterations, not %u",
            MIN_WARM_UP, o->warm_up);
    m->warm_up = o->warm_up ? o->warm_up : DEFAULT_WARM_UP;
    LHI_TRY(LHI_OPTIONS_COPY(lh_sim_options, &m->sim, o->sim, err));
    LHI_TRY(copy_paths(m, pipeline->n_links, err));
    LHI_TRY(lhi_pipeline_copy(pipeline, &m->pipeline, err));
    LHI_TRY(lhi_schedule_copy(schedule, &m->schedule, err));
    LHI_TRY(allocate(m, err));
    store_nominal(m);
    LHI_TRY(list_clock_pairs(m, o->clocks, err));
    return simulate_normal(m, err);
}

lh_status lh_monitor_make(const lh_pipeline *pipeline,
                          const lh_schedule *schedule,
                          const lh_monitor_options *options, lh_monitor **out,
                          lh_error *err)
{
    lh_monitor_options o;
    LHI_TRY(lhi_pipeline_require_one_direction(pipeline, "the monitor", err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_monitor_options, &o, options, err));
    lh_monitor *m = calloc(1, sizeof *m);
    if (!m)
        return lhi_fail_nomem(err);
    lh_status status = set_up(m, pipeline, schedule, &o, err);
    if (status != LH_OK)
        lh_monitor_free(m);
    else
        *out = m;
    return status;
}

/* Frees a monitor; ignores NULL. */
void lh_monitor_free(lh_monitor *m)
{
    if (!m)
        return;
    lh_pipeline_free(m->pipeline);
    lh_schedule_free(m->schedule);
    free(m->delegated);
    free(m->links);
    free(m->work);
    free(m->data);
    free(m->busy);
    free(m->series);
    free(m->pairs);
    free(m->news);
    free(m->active);
    free(m->first);
    free(m->samples);
    free(m->gathered);
    free(m->messages);
    free(m->values);
    free(m);
}

lh_status lhi_monitor_set_schedule_and_path(lh_monitor *m,
                                            const lh_schedule *schedule,
                                            const lh_sim_options *sim,
                                            lh_error *err)
{
    lh_schedule *copy = NULL, *old = m->schedule;
    lh_sim_options old_sim = m->sim, new_sim = m->sim;
    bool *old_paths = m->delegated;
    if (sim)
        LHI_TRY(LHI_OPTIONS_COPY(lh_sim_options, &new_sim, sim, err));
    LHI_TRY(lhi_schedule_copy(schedule, &copy, err));
    m->schedule = copy;
    m->sim = new_sim;
    lh_status status = sim ? copy_paths(m, m->pipeline->n_links, err) : LH_OK;
    if (status == LH_OK)
        status = simulate_normal(m, err);
    if (status != LH_OK) {
        if (m->delegated != old_paths)
            free(m->delegated);
        m->schedule = old;
        m->sim = old_sim;
        m->delegated = old_paths;
        lh_schedule_free(copy);
        return status;
    }
    if (m->delegated != old_paths)
        free(old_paths);
    lh_schedule_free(old);
    return LH_OK;
}

lh_status lh_monitor_set_schedule(lh_monitor *m, const lh_schedule *schedule,
                                  lh_error *err)
{
    return lhi_monitor_set_schedule_and_path(m, schedule, NULL, err);
}

/* --- iterations ----------------------------------------------------------- */

/* Checks that a time's magnitude is so small that the difference of two such
 * times cannot overflow. */
static bool is_valid_time(int64_t ns)
{
    return ns >= -MOST_NS && ns <= MOST_NS;
}

/* Fails with LH_EINVAL if the link of observed message number `i`, `x`, is
 * absent, or if its times are out of range or in the wrong order. */
static lh_status check_message(const lh_monitor *m, size_t i,
                               const lh_observed_message *x, lh_error *err)
{
    if (x->link >= m->pipeline->n_links)
        return lhi_fail(err, LH_EINVAL,
                        "message %zu: there is no link %" PRIu32, i, x->link);
    if (!is_valid_time(x->produced_ns) || !is_valid_time(x->posted_ns) ||
        !is_valid_time(x->entered_ns) || !is_valid_time(x->arrived_ns))
        return lhi_fail(err, LH_EINVAL,
                        "message %zu: a time is beyond 73 years", i);
    bool one_clock = m->links[x->link].pair == LH_NONE;
    if (x->entered_ns < x->produced_ns || x->entered_ns < x->posted_ns)
        return lhi_fail(err, LH_EINVAL,
                        "message %zu: it entered the link before it was "
                        "produced, or before its receive was posted",
                        i);
    if (one_clock && x->arrived_ns < x->entered_ns)
        return lhi_fail(err, LH_EINVAL,
                        "message %zu: it arrived before it entered the link",
                        i);
    return LH_OK;
}

/* Fails with LH_EINVAL if the observation's step is not after the last one, or
 * if one of its messages, passes or collectives is invalid. */
static lh_status check_observation(const lh_monitor *m,
                                   const lh_observation *seen, lh_error *err)
{
    if (m->n_iterations > 0 && seen->step <= m->step)
        return lhi_fail(err, LH_EINVAL,
                        "step %" PRIu64 " follows step %" PRIu64
                        "; steps must increase",
                        seen->step, m->step);
    for (size_t i = 0; i < seen->n_messages; i++)
        LHI_TRY(check_message(m, i, &seen->messages[i], err));
    for (size_t i = 0; i < seen->n_passes; i++) {
        const lh_observed_pass *x = &seen->passes[i];
        if (x->pass.chunk >= m->pipeline->n_chunks || x->pass.kind > LH_B ||
            x->pass.n_parts < 1 || x->pass.part >= x->pass.n_parts || x->ns < 0)
            return lhi_fail(err, LH_EINVAL,
                            "pass %zu: there is no such pass, or its time is "
                            "negative",
                            i);
    }
    for (size_t i = 0; i < seen->n_collectives; i++) {
        const lh_observed_collective *x = &seen->collectives[i];
        if (x->chunk >= m->pipeline->n_chunks || x->ns < 0)
            return lhi_fail(err, LH_EINVAL,
                            "communication %zu: there is no chunk %" PRIu32
                            ", or its time is negative",
                            i, x->chunk);
    }
    return LH_OK;
}

/* Enlarges the monitor's scratch arrays for the messages, passes and
 * collectives in the observation `seen`. */
static lh_status grow(lh_monitor *m, const lh_observation *seen, lh_error *err)
{
    size_t n = seen->n_passes + seen->n_collectives;
    n = n > seen->n_messages ? n : seen->n_messages;
    if (n <= m->capacity)
        return LH_OK;
    lhi_sample *samples = calloc(n, sizeof *samples);
    lhi_sample *gathered = calloc(n, sizeof *gathered);
    lh_observed_message *messages = calloc(n, sizeof *messages);
    double *values = calloc(n, sizeof *values);
    if (!samples || !gathered || !messages || !values) {
        free(samples);
        free(gathered);
        free(messages);
        free(values);
        return lhi_fail_nomem(err);
    }
    free(m->samples);
    free(m->gathered);
    free(m->messages);
    free(m->values);
    m->samples = samples;
    m->gathered = gathered;
    m->messages = messages;
    m->values = values;
    m->capacity = n;
    return LH_OK;
}

/* Returns the monitored quantity that event `e` is about: a link's delay, a
 * device's pass times, or its data-parallel communication. */
static lhi_monitored *find_monitored(const lh_monitor *m,
                                     const lh_monitor_event *e)
{
    return e->target == LH_MONITOR_LINK     ? &m->links[e->index].monitored
           : e->target == LH_MONITOR_DEVICE ? &m->work[e->index]
                                            : &m->data[e->index];
}

/* Computes the cost in ns of each new event: the estimated iteration time minus
 * that with the event's link or device at its normal level. */
static lh_status compute_costs(lh_monitor *m, lh_error *err)
{
    int64_t now = 0;
    if (m->n_news > 0)
        LHI_TRY(lhi_monitor_simulate(m, NULL, false, &now, err));
    for (uint32_t i = 0; i < m->n_news; i++) {
        lhi_monitored *quantity = find_monitored(m, &m->news[i]);
        int64_t without = now;
        if (quantity->is_active)
            LHI_TRY(lhi_monitor_simulate(m, quantity, false, &without, err));
        m->news[i].cost_ns = now - without;
        quantity->event = m->news[i];
    }
    return LH_OK;
}

/* Appends an event with the current level of quantity `quantity` (a link's, a
 * device's or its data-parallel communication's) to the active events, if that
 * differs from the normal level. */
static void add_if_active(lh_monitor *m, lhi_monitored *quantity)
{
    if (!quantity->is_active)
        return;
    quantity->event.current_ns = quantity->detector.level;
    quantity->event.error_ns = lhi_drift_detector_error(&quantity->detector);
    m->active[m->n_active++] = quantity->event;
}

/* Rebuilds the list of active events from all quantities that have left their
 * normal level: links, then devices, then data-parallel communication. */
static void list_active(lh_monitor *m)
{
    m->n_active = 0;
    for (uint32_t l = 0; l < m->pipeline->n_links; l++)
        add_if_active(m, &m->links[l].monitored);
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++)
        add_if_active(m, &m->work[d]);
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++)
        add_if_active(m, &m->data[d]);
}

lh_status lh_monitor_add(lh_monitor *m, const lh_observation *seen,
                         lh_error *err)
{
    lh_observation s;
    LHI_TRY(LHI_OPTIONS_COPY(lh_observation, &s, seen, err));
    LHI_TRY(check_observation(m, &s, err));
    LHI_TRY(grow(m, &s, err));
    lhi_monitor_process_iteration(m, &s);
    if (m->n_iterations == m->warm_up)
        LHI_TRY(simulate_normal(m, err));
    LHI_TRY(compute_costs(m, err));
    list_active(m);
    return LH_OK;
}

const lh_monitor_event *lhi_monitor_events(const lh_monitor *m, uint32_t *n)
{
    *n = m->n_news;
    return m->news;
}

/* Returns the active events (begun and not ended); borrowed until the next
 * iteration is added. */
const lh_monitor_event *lh_monitor_active_events(const lh_monitor *m,
                                                 uint32_t *n)
{
    *n = m->n_active;
    return m->active;
}
