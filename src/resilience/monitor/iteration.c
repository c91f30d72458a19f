/* SPDX-License-Identifier: Apache-2.0 */
/* Processes one iteration: from times to readings, and from readings to
 * changes. */
#include "resilience/monitor/monitor_internal.h"

#include <math.h>

/* Share of an iteration: smaller changes are tracked without a report, because
 * they cannot cost twice as much. */
static const double min_share = 0.025;
/* Least reported change, relative to the quantity's own time. */
static const double min_change = 0.02;

/* Checks whether the monitor is still in its warm-up iterations, in which it
 * learns the normal level of every quantity. */
static bool is_learning(const lh_monitor *m)
{
    return m->n_iterations < m->warm_up;
}

/* --- changes -------------------------------------------------------------- */

/* Appends the event that the level of quantity `w` changed (`move`: begins,
 * changes or ends) `ago` iterations ago. `what`, `index`: the link, the device,
 * or the device's data-parallel communication that it belongs to. */
static void report_change(lh_monitor *m, lhi_monitored *w,
                          lh_monitor_target what, uint32_t index,
                          lhi_drift_change move, uint32_t ago)
{
    static const lh_monitor_change changes[] = {
        [LHI_DRIFT_BEGINS] = LH_MONITOR_BEGINS,
        [LHI_DRIFT_CHANGES] = LH_MONITOR_CHANGES,
        [LHI_DRIFT_ENDS] = LH_MONITOR_ENDS,
    };
    if (move == LHI_DRIFT_UNCHANGED)
        return;
    w->is_active = move != LHI_DRIFT_ENDS;
    w->event = (lh_monitor_event){
        .target = what,
        .index = index,
        .change = changes[move],
        .first_step = w->steps[ago],
        .baseline_ns = w->detector.normal,
        .current_ns = w->detector.level,
        .error_ns = lhi_drift_detector_error(&w->detector),
    };
    m->news[m->n_news++] = w->event;
}

/* Adds this iteration's reading to the drift detector of the monitored quantity
 * `w`, and returns the change found, which began *ago iterations before.
 * `least`: smallest change to report, in ns. */
static lhi_drift_change add_reading(const lh_monitor *m, lhi_monitored *w,
                                    lhi_drift_reading reading, double least,
                                    uint32_t *ago)
{
    for (uint32_t i = LHI_DRIFT_WINDOW - 1; i > 0; i--)
        w->steps[i] = w->steps[i - 1];
    w->steps[0] = m->step;
    return lhi_drift_detector_add(&w->detector, reading, is_learning(m), least,
                                  ago);
}

/* Returns the smallest change of quantity `w` worth reporting, in ns per
 * occurrence, if it occurs `times` times in an iteration. */
static double compute_min_reported_change(const lh_monitor *m,
                                          const lhi_monitored *w, double times)
{
    return fmax(min_share * m->iteration_ns / times,
                min_change * w->detector.level);
}

/* --- grouping samples ----------------------------------------------------- */

/* Sorts the first `n` of m->samples by their member `group` (0 to n_things -
 * 1), with a stable counting sort. */
static void group_samples(lh_monitor *m, size_t n, size_t n_things)
{
    size_t sum = 0;
    for (size_t t = 0; t < n_things; t++)
        m->first[t] = 0;
    for (size_t i = 0; i < n; i++)
        m->first[m->samples[i].group]++;
    for (size_t t = 0; t < n_things; t++) {
        size_t count = m->first[t];
        m->first[t] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        m->gathered[m->first[m->samples[i].group]++] = m->samples[i];
    lhi_sample *gathered = m->gathered;
    m->gathered = m->samples;
    m->samples = gathered;
}

/* Computes the trimmed mean of the samples with the same `group` as sample *i,
 * among n sorted by group; advances *i to the next group. */
static lhi_drift_reading next_reading(lh_monitor *m, size_t n, size_t *i)
{
    uint32_t of = m->samples[*i].group;
    size_t k = 0;
    for (; *i < n && m->samples[*i].group == of; (*i)++)
        m->values[k++] = m->samples[*i].value;
    return lhi_drift_reading_compute(m->values, k);
}

/* --- clocks --------------------------------------------------------------- */

/* Updates the estimated offset of each pair of clocks from the messages in
 * `seen`: the smallest excess delay (measured minus expected) in each
 * direction. */
static void compare_clocks(lh_monitor *m, const lh_observation *seen)
{
    for (uint32_t i = 0; i < m->n_pairs; i++)
        m->pairs[i].forward_ns = m->pairs[i].backward_ns = HUGE_VAL;
    for (size_t i = 0; i < seen->n_messages; i++) {
        const lh_observed_message *message = &seen->messages[i];
        const lhi_monitored_link *link = &m->links[message->link];
        if (link->pair == LH_NONE)
            continue;
        lhi_clock_pair *pair = &m->pairs[link->pair];
        double *least =
            link->is_reversed ? &pair->backward_ns : &pair->forward_ns;
        double took = (double)(message->arrived_ns - message->entered_ns);
        *least = fmin(*least, took - link->nominal_ns);
    }
    for (uint32_t i = 0; i < m->n_pairs; i++) {
        lhi_clock_pair *p = &m->pairs[i];
        bool there = p->forward_ns < HUGE_VAL, back = p->backward_ns < HUGE_VAL;
        if (there && back)
            p->offset = lhi_clock_offset_add(&p->estimate, m->step,
                                             p->forward_ns, p->backward_ns);
        else if ((there || back) && !p->is_known)
            p->offset = there ? p->forward_ns : -p->backward_ns;
        p->is_known = p->is_known || there || back;
    }
}

/* --- links ---------------------------------------------------------------- */

/* Sorts the messages in `seen` by link resource, then by entry time, into
 * m->messages; insertion sort, as they are nearly sorted. */
static void order_messages(lh_monitor *m, const lh_observation *seen)
{
    const uint32_t *resources = m->pipeline->link_resources;
    for (size_t i = 0; i < seen->n_messages; i++)
        m->samples[i] =
            (lhi_sample){resources[seen->messages[i].link], (double)i};
    group_samples(m, seen->n_messages, m->pipeline->n_resources);
    for (size_t i = 0; i < seen->n_messages; i++) {
        const lh_observed_message now =
            seen->messages[(size_t)m->samples[i].value];
        size_t at = i;
        while (at > 0 && m->samples[at - 1].group == m->samples[i].group &&
               m->messages[at - 1].entered_ns > now.entered_ns) {
            m->messages[at] = m->messages[at - 1];
            at--;
        }
        m->messages[at] = now;
    }
}

/* Writes observed transfer times to m->samples, grouped by link, and returns
 * their number. If a message waited only for the link, the gap between its
 * entry and its predecessor's is the predecessor's transfer time. */
static size_t find_transfers(lh_monitor *m, const lh_observation *seen)
{
    const uint32_t *resources = m->pipeline->link_resources;
    size_t n = 0;
    order_messages(m, seen);
    for (size_t i = 1; i < seen->n_messages; i++) {
        const lh_observed_message *now = &m->messages[i], *before = now - 1;
        int64_t could = now->produced_ns > now->posted_ns ? now->produced_ns
                                                          : now->posted_ns;
        if (resources[now->link] == resources[before->link] &&
            now->entered_ns > could) {
            int64_t gap = now->entered_ns - before->entered_ns;
            m->samples[n++] = (lhi_sample){before->link, (double)gap};
        }
    }
    return n;
}

/* Updates each link's mean transfer time with the transfer times observed in
 * `seen`; starts the mean anew after the link's level has changed. */
static void update_transfers(lh_monitor *m, const lh_observation *seen)
{
    size_t n = find_transfers(m, seen);
    group_samples(m, n, m->pipeline->n_links);
    for (size_t i = 0; i < n;) {
        lhi_monitored_link *link = &m->links[m->samples[i].group];
        double mean = next_reading(m, n, &i).mean;
        bool anew = link->transfers_step < link->monitored.changed_step;
        link->n_transfers =
            anew ? 1 : fmin(link->n_transfers + 1, LHI_DRIFT_AVERAGING);
        link->transfers_step = m->step;
        link->transfer_ns += (mean - link->transfer_ns) / link->n_transfers;
    }
}

/* Returns the clock offset by which measured delays on the link are too long,
 * in ns; 0 if both ends share a clock. */
static double get_clock_offset(const lh_monitor *m,
                               const lhi_monitored_link *link)
{
    if (link->pair == LH_NONE)
        return 0;
    double offset = m->pairs[link->pair].offset;
    return link->is_reversed ? -offset : offset;
}

/* Passes each link's message delays in `seen`, corrected by its clocks' offset,
 * to the link's drift detector, and reports the changes found as events. */
static void update_links(lh_monitor *m, const lh_observation *seen)
{
    for (size_t i = 0; i < seen->n_messages; i++) {
        const lh_observed_message *message = &seen->messages[i];
        lhi_monitored_link *link = &m->links[message->link];
        double took = (double)(message->arrived_ns - message->entered_ns);
        m->samples[i] = (lhi_sample){message->link,
                                     fmax(took - get_clock_offset(m, link), 0)};
        if (message->bytes > 0)
            link->bytes = (double)message->bytes;
    }
    group_samples(m, seen->n_messages, m->pipeline->n_links);
    for (size_t i = 0; i < seen->n_messages;) {
        uint32_t l = m->samples[i].group, ago;
        lhi_monitored *w = &m->links[l].monitored;
        lhi_drift_reading reading = next_reading(m, seen->n_messages, &i);
        lhi_drift_change move = add_reading(
            m, w, reading, compute_min_reported_change(m, w, (double)reading.n),
            &ago);
        report_change(m, w, LH_MONITOR_LINK, l, move, ago);
        if (move != LHI_DRIFT_UNCHANGED)
            w->changed_step = m->step;
    }
}

/* --- devices -------------------------------------------------------------- */

/* Computes this iteration's mean time of each series (one kind of pass or
 * collective of one chunk). Scales the parts of a split W to the whole pass. */
static void read_series(lh_monitor *m, const lh_observation *seen)
{
    size_t n = 0;
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++)
        for (uint32_t k = 0; k < LHI_N_SERIES; k++)
            lhi_monitor_series(m, c, k)->reading = (lhi_drift_reading){0};
    for (size_t i = 0; i < seen->n_passes; i++) {
        const lh_pass *pass = &seen->passes[i].pass;
        const lh_chunk *chunk = &m->pipeline->chunks[pass->chunk];
        int64_t part = lhi_pass_duration(m->pipeline, pass);
        double whole = pass->n_parts > 1 && part > 0
                           ? (double)chunk->w_ns / (double)part
                           : 1;
        m->samples[n++] = (lhi_sample){pass->chunk * LHI_N_SERIES + pass->kind,
                                       whole * (double)seen->passes[i].ns};
    }
    for (size_t i = 0; i < seen->n_collectives; i++) {
        const lh_observed_collective *c = &seen->collectives[i];
        uint32_t kind = c->is_reduce_scatter ? LHI_SCATTERS : LHI_GATHERS;
        m->samples[n++] =
            (lhi_sample){c->chunk * LHI_N_SERIES + kind, (double)c->ns};
    }
    group_samples(m, n, (size_t)m->pipeline->n_chunks * LHI_N_SERIES);
    for (size_t i = 0; i < n;) {
        lhi_series *s = &m->series[m->samples[i].group];
        s->reading = next_reading(m, n, &i);
    }
}

/* Averages this iteration's reading into the current mean of series `s`;
 * restarts the mean if the level of its device's quantity `of` has changed
 * since. */
static void update_series(lh_monitor *m, lhi_series *s, const lhi_monitored *of)
{
    bool anew = s->last_step < of->changed_step;
    if (s->reading.n == 0)
        return;
    s->weight = anew ? 1 : fmin(s->weight + 1, LHI_DRIFT_AVERAGING);
    s->mean += (s->reading.mean - s->mean) / s->weight;
    s->variance += (s->reading.variance - s->variance) / s->weight;
    s->n += s->reading.n;
    s->last_step = m->step;
}

/* Sums, for each device, the busy time of series `from` to `to` - 1 (kinds of
 * pass or collective) in this iteration, and the same passes' time during
 * warm-up. The latter makes iterations of different schedules comparable. */
static void sum_busy_times(lh_monitor *m, uint32_t from, uint32_t to)
{
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++)
        m->busy[d] = (lhi_busy_time){0};
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++) {
        lhi_busy_time *busy = &m->busy[m->pipeline->chunks[c].device];
        for (uint32_t k = from; k < to; k++) {
            const lhi_series *s = lhi_monitor_series(m, c, k);
            double times = (double)s->reading.n;
            if (s->n_initial < m->warm_up / 2)
                continue;
            busy->current += times * s->reading.mean;
            busy->initial += times * s->initial;
            busy->variance += times * times * s->reading.variance;
            busy->n += s->reading.n;
        }
    }
}

/* Sets quantities[d].slowdown to the ratio of device d's current mean times to
 * its nominal times, summed over series `from` to `to` - 1 (kinds of pass or
 * collective). */
static void compare_with_nominal(lh_monitor *m, lhi_monitored *quantities,
                                 uint32_t from, uint32_t to)
{
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++)
        m->busy[d] = (lhi_busy_time){0};
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++)
        for (uint32_t k = from; k < to; k++) {
            const lhi_series *s = lhi_monitor_series(m, c, k);
            lhi_busy_time *busy = &m->busy[m->pipeline->chunks[c].device];
            if (s->n == 0 || s->nominal_ns <= 0)
                continue;
            busy->current += s->mean;
            busy->initial += s->nominal_ns;
        }
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++) {
        const lhi_busy_time *busy = &m->busy[d];
        quantities[d].slowdown =
            busy->initial > 0 ? busy->current / busy->initial : 1;
    }
}

/* Averages this iteration's readings of series `from` to `to` - 1 (kinds of
 * pass or collective) into their initial means, divided by the device's present
 * slowdown: a new schedule's series may first occur while the device is slow.
 * */
static void learn_initial(lh_monitor *m, const lhi_monitored *quantities,
                          uint32_t from, uint32_t to)
{
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++) {
        const lhi_monitored *quantity =
            &quantities[m->pipeline->chunks[c].device];
        for (uint32_t k = from; k < to; k++) {
            lhi_series *s = lhi_monitor_series(m, c, k);
            double quiet =
                s->reading.mean * lhi_monitored_normal_ratio(quantity);
            if (s->reading.n > 0 && s->n_initial < m->warm_up / 2)
                s->initial += (quiet - s->initial) / ++s->n_initial;
        }
    }
}

/* Passes a device's busy time, as a ratio to the same passes' initial times, to
 * the drift detector of quantity `w`. Returns the change found, which began
 * *ago iterations before. */
static lhi_drift_change update_device(lh_monitor *m, lhi_monitored *w,
                                      const lhi_busy_time *busy, uint32_t *ago)
{
    if (busy->initial <= 0)
        return LHI_DRIFT_UNCHANGED;
    if (w->initial_ns == 0)
        w->initial_ns = busy->initial;
    double scale = w->initial_ns / busy->initial;
    lhi_drift_reading reading = {busy->current * scale,
                                 busy->variance * scale * scale, busy->n};
    return add_reading(m, w, reading, compute_min_reported_change(m, w, 1),
                       ago);
}

/* Passes each device's times of series `from` to `to` - 1 (kinds of pass or
 * collective) to its drift detector in `quantities`, reports changes as events
 * about `what`, and updates means and slowdowns. */
static void update_devices(lh_monitor *m, lhi_monitored *quantities,
                           lh_monitor_target what, uint32_t from, uint32_t to)
{
    sum_busy_times(m, from, to);
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++) {
        uint32_t ago;
        lhi_drift_change move =
            update_device(m, &quantities[d], &m->busy[d], &ago);
        report_change(m, &quantities[d], what, d, move, ago);
        if (move != LHI_DRIFT_UNCHANGED)
            quantities[d].changed_step = m->step;
    }
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++)
        for (uint32_t k = from; k < to; k++)
            update_series(m, lhi_monitor_series(m, c, k),
                          &quantities[m->pipeline->chunks[c].device]);
    compare_with_nominal(m, quantities, from, to);
    learn_initial(m, quantities, from, to);
}

/* --- iteration ------------------------------------------------------------ */

void lhi_monitor_process_iteration(lh_monitor *m, const lh_observation *seen)
{
    m->step = seen->step;
    m->n_news = 0;
    compare_clocks(m, seen);
    update_links(m, seen);
    update_transfers(m, seen);
    read_series(m, seen);
    update_devices(m, m->work, LH_MONITOR_DEVICE, LH_F, LHI_GATHERS);
    update_devices(m, m->data, LH_MONITOR_DATA, LHI_GATHERS, LHI_N_SERIES);
    m->n_iterations++;
}
