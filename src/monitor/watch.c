/* SPDX-License-Identifier: Apache-2.0 */
/* Processes one iteration: from times to readings, and from readings to
 * changes. */
#include "monitor/monitor_own.h"

#include <math.h>

/* Share of an iteration: smaller changes are tracked without a report, because
 * they cannot cost twice as much. */
static const double least_share = 0.025;
/* Least reported change, relative to the quantity's own time. */
static const double least_change = 0.02;

static bool is_learning(const lh_monitor *m)
{
    return m->n_seen < m->warm_up;
}

/* --- changes -------------------------------------------------------------- */

/* Records a detected change as an event. */
static void tell(lh_monitor *m, lhi_watched *w, lh_monitor_what what,
                 uint32_t index, lhi_gauge_move move, uint32_t ago)
{
    static const lh_monitor_change changes[] = {
        [LHI_GAUGE_LEAVES] = LH_MONITOR_BEGINS,
        [LHI_GAUGE_MOVES] = LH_MONITOR_CHANGES,
        [LHI_GAUGE_RETURNS] = LH_MONITOR_ENDS,
    };
    if (move == LHI_GAUGE_STAYS)
        return;
    w->is_open = move != LHI_GAUGE_RETURNS;
    w->event = (lh_monitor_event){
        .what = what,
        .index = index,
        .change = changes[move],
        .from = w->steps[ago],
        .before_ns = w->gauge.quiet,
        .now_ns = w->gauge.level,
        .error_ns = lhi_gauge_error(&w->gauge),
    };
    m->news[m->n_news++] = w->event;
}

/* Adds a reading for the present step. */
static lhi_gauge_move add_reading(const lh_monitor *m, lhi_watched *w,
                                  lhi_gauge_reading reading, double least,
                                  uint32_t *ago)
{
    for (uint32_t i = LHI_GAUGE_WINDOW - 1; i > 0; i--)
        w->steps[i] = w->steps[i - 1];
    w->steps[0] = m->step;
    return lhi_gauge_add(&w->gauge, reading, is_learning(m), least, ago);
}

/* Returns the least reported change in ns. `times`: occurrences per iteration.
 */
static double least_move(const lh_monitor *m, const lhi_watched *w,
                         double times)
{
    return fmax(least_share * m->iteration_ns / times,
                least_change * w->gauge.level);
}

/* --- grouping samples ----------------------------------------------------- */

/* Groups samples by `of`, a number below n_things, with a stable counting sort.
 */
static void gather_things(lh_monitor *m, size_t n, size_t n_things)
{
    size_t sum = 0;
    for (size_t t = 0; t < n_things; t++)
        m->first[t] = 0;
    for (size_t i = 0; i < n; i++)
        m->first[m->samples[i].of]++;
    for (size_t t = 0; t < n_things; t++) {
        size_t count = m->first[t];
        m->first[t] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        m->gathered[m->first[m->samples[i].of]++] = m->samples[i];
    lhi_sample *gathered = m->gathered;
    m->gathered = m->samples;
    m->samples = gathered;
}

/* Reads the group that begins at sample *i and advances *i to the next group.
 */
static lhi_gauge_reading next_reading(lh_monitor *m, size_t n, size_t *i)
{
    uint32_t of = m->samples[*i].of;
    size_t k = 0;
    for (; *i < n && m->samples[*i].of == of; (*i)++)
        m->values[k++] = m->samples[*i].value;
    return lhi_gauge_read(m->values, k);
}

/* --- clocks --------------------------------------------------------------- */

static void compare_clocks(lh_monitor *m, const lh_seen *seen)
{
    for (uint32_t i = 0; i < m->n_pairs; i++)
        m->pairs[i].there = m->pairs[i].back = HUGE_VAL;
    for (size_t i = 0; i < seen->n_messages; i++) {
        const lh_seen_message *message = &seen->messages[i];
        const lhi_watched_link *link = &m->links[message->link];
        if (link->pair == LH_NONE)
            continue;
        lhi_clock_pair *pair = &m->pairs[link->pair];
        double *least = link->reversed ? &pair->back : &pair->there;
        double took = (double)(message->arrived_ns - message->entered_ns);
        *least = fmin(*least, took - link->nominal_ns);
    }
    for (uint32_t i = 0; i < m->n_pairs; i++) {
        lhi_clock_pair *p = &m->pairs[i];
        bool there = p->there < HUGE_VAL, back = p->back < HUGE_VAL;
        if (there && back)
            p->offset = lhi_clocks_add(&p->clocks, m->step, p->there, p->back);
        else if ((there || back) && !p->is_known)
            p->offset = there ? p->there : -p->back;
        p->is_known = p->is_known || there || back;
    }
}

/* --- links ---------------------------------------------------------------- */

/* Sorts messages by link resource and entry. They are nearly sorted, so
 * insertion suffices. */
static void order_messages(lh_monitor *m, const lh_seen *seen)
{
    const uint32_t *resources = m->pipeline->link_resources;
    for (size_t i = 0; i < seen->n_messages; i++)
        m->samples[i] =
            (lhi_sample){resources[seen->messages[i].link], (double)i};
    gather_things(m, seen->n_messages, m->pipeline->n_resources);
    for (size_t i = 0; i < seen->n_messages; i++) {
        const lh_seen_message now = seen->messages[(size_t)m->samples[i].value];
        size_t at = i;
        while (at > 0 && m->samples[at - 1].of == m->samples[i].of &&
               m->messages[at - 1].entered_ns > now.entered_ns) {
            m->messages[at] = m->messages[at - 1];
            at--;
        }
        m->messages[at] = now;
    }
}

/* Lists transfer times. A message that waited only for the link entered when
 * its predecessor's transfer ended: the gap is the predecessor's transfer time.
 */
static size_t find_transfers(lh_monitor *m, const lh_seen *seen)
{
    const uint32_t *resources = m->pipeline->link_resources;
    size_t n = 0;
    order_messages(m, seen);
    for (size_t i = 1; i < seen->n_messages; i++) {
        const lh_seen_message *now = &m->messages[i], *before = now - 1;
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

static void note_transfers(lh_monitor *m, const lh_seen *seen)
{
    size_t n = find_transfers(m, seen);
    gather_things(m, n, m->pipeline->n_links);
    for (size_t i = 0; i < n;) {
        lhi_watched_link *link = &m->links[m->samples[i].of];
        double mean = next_reading(m, n, &i).mean;
        bool anew = link->transfers_at < link->is.moved_at;
        link->n_transfers =
            anew ? 1 : fmin(link->n_transfers + 1, LHI_GAUGE_LEVEL);
        link->transfers_at = m->step;
        link->transfer_ns += (mean - link->transfer_ns) / link->n_transfers;
    }
}

static double offset_of(const lh_monitor *m, const lhi_watched_link *link)
{
    if (link->pair == LH_NONE)
        return 0;
    double offset = m->pairs[link->pair].offset;
    return link->reversed ? -offset : offset;
}

static void watch_links(lh_monitor *m, const lh_seen *seen)
{
    for (size_t i = 0; i < seen->n_messages; i++) {
        const lh_seen_message *message = &seen->messages[i];
        lhi_watched_link *link = &m->links[message->link];
        double took = (double)(message->arrived_ns - message->entered_ns);
        m->samples[i] =
            (lhi_sample){message->link, fmax(took - offset_of(m, link), 0)};
        if (message->bytes > 0)
            link->bytes = (double)message->bytes;
    }
    gather_things(m, seen->n_messages, m->pipeline->n_links);
    for (size_t i = 0; i < seen->n_messages;) {
        uint32_t l = m->samples[i].of, ago;
        lhi_watched *w = &m->links[l].is;
        lhi_gauge_reading reading = next_reading(m, seen->n_messages, &i);
        lhi_gauge_move move = add_reading(
            m, w, reading, least_move(m, w, (double)reading.n), &ago);
        tell(m, w, LH_MONITOR_LINK, l, move, ago);
        if (move != LHI_GAUGE_STAYS)
            w->moved_at = m->step;
    }
}

/* --- devices -------------------------------------------------------------- */

static void read_series(lh_monitor *m, const lh_seen *seen)
{
    size_t n = 0;
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++)
        for (uint32_t k = 0; k < LHI_N_SERIES; k++)
            lhi_series_of(m, c, k)->reading = (lhi_gauge_reading){0};
    for (size_t i = 0; i < seen->n_passes; i++) {
        const lh_pass *pass = &seen->passes[i].pass;
        const lh_chunk *chunk = &m->pipeline->chunks[pass->chunk];
        int64_t part = lhi_pass_time(chunk, pass);
        double whole = pass->n_parts > 1 && part > 0
                           ? (double)chunk->w_ns / (double)part
                           : 1;
        m->samples[n++] = (lhi_sample){pass->chunk * LHI_N_SERIES + pass->kind,
                                       whole * (double)seen->passes[i].ns};
    }
    for (size_t i = 0; i < seen->n_collectives; i++) {
        const lh_seen_collective *c = &seen->collectives[i];
        uint32_t kind = c->is_reduce_scatter ? LHI_SCATTERS : LHI_GATHERS;
        m->samples[n++] =
            (lhi_sample){c->chunk * LHI_N_SERIES + kind, (double)c->ns};
    }
    gather_things(m, n, (size_t)m->pipeline->n_chunks * LHI_N_SERIES);
    for (size_t i = 0; i < n;) {
        lhi_series *s = &m->series[m->samples[i].of];
        s->reading = next_reading(m, n, &i);
    }
}

/* Updates a series' present mean; restarts it if its device has changed since.
 */
static void follow_series(lh_monitor *m, lhi_series *s, const lhi_watched *of)
{
    bool anew = s->last_step < of->moved_at;
    if (s->reading.n == 0)
        return;
    s->weight = anew ? 1 : fmin(s->weight + 1, LHI_GAUGE_LEVEL);
    s->mean += (s->reading.mean - s->mean) / s->weight;
    s->variance += (s->reading.variance - s->variance) / s->weight;
    s->n += s->reading.n;
    s->last_step = m->step;
}

/* Sums each device's busy time and the same work's initial time, because
 * schedules may have other passes. */
static void add_busy(lh_monitor *m, uint32_t from, uint32_t to)
{
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++)
        m->busy[d] = (lhi_busy){0};
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++) {
        lhi_busy *busy = &m->busy[m->pipeline->chunks[c].device];
        for (uint32_t k = from; k < to; k++) {
            const lhi_series *s = lhi_series_of(m, c, k);
            double times = (double)s->reading.n;
            if (s->n_first < m->warm_up / 2)
                continue;
            busy->now += times * s->reading.mean;
            busy->first += times * s->first;
            busy->variance += times * times * s->reading.variance;
            busy->n += s->reading.n;
        }
    }
}

/* Computes each device's slowdown relative to the pipeline's nominal times. */
static void compare_with_nominal(lh_monitor *m, lhi_watched *things,
                                 uint32_t from, uint32_t to)
{
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++)
        m->busy[d] = (lhi_busy){0};
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++)
        for (uint32_t k = from; k < to; k++) {
            const lhi_series *s = lhi_series_of(m, c, k);
            lhi_busy *busy = &m->busy[m->pipeline->chunks[c].device];
            if (s->n == 0 || s->nominal_ns <= 0)
                continue;
            busy->now += s->mean;
            busy->first += s->nominal_ns;
        }
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++) {
        const lhi_busy *busy = &m->busy[d];
        things[d].slowness = busy->first > 0 ? busy->now / busy->first : 1;
    }
}

/* Learns a series' initial mean at its device's normal level: a series that
 * another schedule introduces may first occur while the device is slow. */
static void learn_first(lh_monitor *m, const lhi_watched *things, uint32_t from,
                        uint32_t to)
{
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++) {
        const lhi_watched *thing = &things[m->pipeline->chunks[c].device];
        for (uint32_t k = from; k < to; k++) {
            lhi_series *s = lhi_series_of(m, c, k);
            double quiet = s->reading.mean * lhi_to_quiet(thing);
            if (s->reading.n > 0 && s->n_first < m->warm_up / 2)
                s->first += (quiet - s->first) / ++s->n_first;
        }
    }
}

static lhi_gauge_move watch_device(lh_monitor *m, lhi_watched *w,
                                   const lhi_busy *busy, uint32_t *ago)
{
    if (busy->first <= 0)
        return LHI_GAUGE_STAYS;
    if (w->usual_ns == 0)
        w->usual_ns = busy->first;
    double scale = w->usual_ns / busy->first;
    lhi_gauge_reading reading = {busy->now * scale,
                                 busy->variance * scale * scale, busy->n};
    return add_reading(m, w, reading, least_move(m, w, 1), ago);
}

static void watch_devices(lh_monitor *m, lhi_watched *things,
                          lh_monitor_what what, uint32_t from, uint32_t to)
{
    add_busy(m, from, to);
    for (uint32_t d = 0; d < m->pipeline->n_devices; d++) {
        uint32_t ago;
        lhi_gauge_move move = watch_device(m, &things[d], &m->busy[d], &ago);
        tell(m, &things[d], what, d, move, ago);
        if (move != LHI_GAUGE_STAYS)
            things[d].moved_at = m->step;
    }
    for (uint32_t c = 0; c < m->pipeline->n_chunks; c++)
        for (uint32_t k = from; k < to; k++)
            follow_series(m, lhi_series_of(m, c, k),
                          &things[m->pipeline->chunks[c].device]);
    compare_with_nominal(m, things, from, to);
    learn_first(m, things, from, to);
}

/* --- iteration ------------------------------------------------------------ */

void lhi_watch(lh_monitor *m, const lh_seen *seen)
{
    m->step = seen->step;
    m->n_news = 0;
    compare_clocks(m, seen);
    watch_links(m, seen);
    note_transfers(m, seen);
    read_series(m, seen);
    watch_devices(m, m->work, LH_MONITOR_DEVICE, LH_F, LHI_GATHERS);
    watch_devices(m, m->data, LH_MONITOR_DATA, LHI_GATHERS, LHI_N_SERIES);
    m->n_seen++;
}
