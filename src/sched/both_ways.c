/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/both_ways.h"

#include "base/whole.h"

#include <string.h>

#define NEVER INT64_MAX

/* The pass that a device runs next. */
typedef struct pick {
    int64_t start_ns; /* NEVER: no candidate at present */
    uint32_t stream;
} pick;

/* The next pass in a stream. */
typedef struct coming {
    int64_t ready_ns; /* inputs available; NEVER: unknown, or no next pass */
    int64_t time_ns, due_ns;
    uint32_t stream;
    uint32_t asked; /* device's pass count when .. */
    bool fits;      /* .. `fits` was evaluated */
} coming;

/* A pass that a device could run next. */
typedef struct candidate {
    int64_t start_ns;
    coming *pass;
} candidate;

/* Memory change per pass in a stream, and the number of completed microbatches.
 */
typedef struct holding {
    int64_t memory;
    uint32_t done;
} holding;

/* Prefix and suffix sums for the current device, per position in its stream
 * sequence. */
typedef struct standing {
    int64_t rise;   /* max. rise for a microbatch from here on */
    int64_t taken;  /* memory held by completed passes from here on */
    int64_t before; /* held by one microbatch up to here */
    uint32_t most;  /* max. completed in any stream from here on */
    uint32_t least; /* min. completed in any stream before here */
} standing;

/* State for one run of the list scheduler. */
typedef struct lhi_way_state {
    const lhi_way_rules *rules;
    bool backward;
    uint32_t n_parts;
    int64_t *ready; /* [stream * n + microbatch]: inputs available so far */
    uint32_t *next; /* per stream: passes run; W: parts */
    holding *now;   /* per slot in this direction */
    coming *coming; /* per forward slot, in both directions */
    int64_t *free;  /* per device */
    int64_t *held;  /* per device: memory, complete passes only */
    uint8_t *turn;  /* per device: kind of its last F or D */
    bool *begun;    /* per device: a D has run */
    int64_t *link;  /* per resource: free from this time */
    pick *picks;    /* per device */
    uint32_t *tree, leaves;
    candidate *list;    /* candidates on the current device */
    standing *standing; /* sums for the current device, one extra entry */
} way_state;

static bool is_w(const lhi_both_ways *b, uint32_t stream)
{
    return b->kinds == 3 && stream % 3 == 2;
}

static holding *holding_of(const lhi_both_ways *b, uint32_t stream)
{
    const way_state *s = b->state;
    return &s->now[b->lanes[stream].way[s->backward].slot];
}

/* Returns the number of microbatches that a stream has completed. */
static uint32_t done(const lhi_both_ways *b, uint32_t stream)
{
    return holding_of(b, stream)->done;
}

/* --- memory -------------------------------------------------------------- */

/* Fills the sums for all n positions on a device, plus the one past the end. */
static void stand(const way_state *s, const holding *now, uint32_t n)
{
    standing *at = s->standing;
    at[n].rise = at[n].taken = 0;
    at[n].most = 0;
    for (uint32_t i = n; i-- > 0;) {
        const int64_t rise = at[i + 1].rise + now[i].memory;
        const uint32_t done = now[i].done, most = at[i + 1].most;
        at[i].rise = rise > 0 ? rise : 0;
        at[i].taken = at[i + 1].taken + now[i].memory * (int64_t)done;
        at[i].most = most > done ? most : done;
    }
    at[0].before = 0;
    at[0].least = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t done = now[i].done, least = at[i].least;
        at[i + 1].before = at[i].before + now[i].memory;
        at[i + 1].least = least < done ? least : done;
    }
}

/* Checks whether microbatch m can finish with `room` bytes plus the memory that
 * earlier microbatches release.
 *
 * The check covers the streams that m has not passed yet: its memory must never
 * rise above the available amount. They are all streams from a position near i
 * on, plus a few earlier ones that lag behind (W may). Lowers *spare to the
 * memory left over, for m and for the following microbatches up to n with the
 * same passes completed. */
static bool can_finish(const way_state *s, const holding *now, uint32_t i,
                       uint32_t m, uint32_t n, int64_t room, int64_t *spare)
{
    const standing *at = s->standing;
    while (at[i].most > m)
        i++;
    while (i > 0 && now[i - 1].done <= m)
        i--;
    int64_t rise = at[i].rise, each = 0;
    room += at[i].taken;
    for (; at[i].least <= m; i--) {
        const holding *h = &now[i - 1];
        if (h->done > m) {
            each += h->memory;
            continue;
        }
        room += h->memory * (int64_t)h->done;
        rise = lhi_most(rise + h->memory, 0);
    }
    each += at[i].before; /* held by a microbatch as far as m */
    room += each * (int64_t)m - rise;
    *spare = lhi_least(*spare, each < 0 ? room + each * (n - 1 - m) : room);
    return room >= 0;
}

/* Checks with Dijkstra's banker's algorithm whether all microbatches can finish
 * one after another, each with the free memory and the memory that earlier ones
 * release. The customers' order is the microbatch order. Microbatches with the
 * same completed passes differ only in the number before them, so the first has
 * least memory.
 *
 * On success each microbatch leaves at least *spare. A further pass for
 * microbatch m reduces the memory for m and those before it by at most its own
 * change, and does not affect the others. Therefore passes that together take
 * at most *spare are also safe. */
static bool is_safe(const lhi_both_ways *b, uint32_t device, int64_t *spare)
{
    const way_state *s = b->state;
    const lhi_lane_device *d = &b->devices[device];
    const uint32_t n = d->n_streams;
    const holding *now = s->now + d->first_slot;
    int64_t room = d->room - s->held[device];
    if (room < 0)
        return false;
    *spare = room - d->whole[s->backward];
    if (*spare >= 0)
        return true;
    *spare = room;
    if (d->one_takes[s->backward])
        return true;
    stand(s, now, n);
    if (!can_finish(s, now, n, 0, b->n, room, spare))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t m = now[i].done;
        bool known = m == 0 || m >= b->n || (i > 0 && now[i - 1].done == m);
        if (!known && !can_finish(s, now, i, m, b->n, room, spare))
            return false;
    }
    return true;
}

/* Counts a complete pass in a stream, or undoes it. */
static void count(const lhi_both_ways *b, uint32_t device, holding *h, bool on)
{
    h->done += on ? 1 : UINT32_MAX;
    b->state->held[device] += on ? h->memory : -h->memory;
}

/* Checks whether the state is still safe after one more pass in a stream. */
static bool is_safe_after(const lhi_both_ways *b, uint32_t device, holding *h,
                          int64_t *spare)
{
    count(b, device, h, true);
    bool safe = is_safe(b, device, spare);
    count(b, device, h, false);
    return safe;
}

/* Checks whether passes on the device with an earlier due date still fit after
 * `pass`. Passes that take at most `spare` need no check. */
static bool leaves_room(const lhi_both_ways *b, uint32_t device,
                        const coming *pass, holding *of, int64_t spare)
{
    const way_state *s = b->state;
    const lhi_lane_device *d = &b->devices[device];
    const coming *all = s->coming + d->first_slot;
    holding *now = s->now + d->first_slot;
    bool room = true;
    count(b, device, of, true);
    for (uint32_t i = 0; i < d->n_streams && room; i++) {
        holding *h = &now[s->backward ? d->n_streams - 1 - i : i];
        int64_t left;
        if (h->memory > spare && h != of && h->done < b->n &&
            all[i].due_ns < pass->due_ns)
            room = is_safe_after(b, device, h, &left);
    }
    count(b, device, of, false);
    return room;
}

/* Checks a pass against the chunk's cap, memory safety and reserved memory. */
static bool finds_room(const lhi_both_ways *b, uint32_t device,
                       const coming *pass)
{
    const way_state *s = b->state;
    const lhi_lane_device *d = &b->devices[device];
    const uint32_t stream = pass->stream;
    uint32_t chunk = stream / b->kinds;
    uint32_t first = chunk * b->kinds, last = first + b->kinds - 1;
    uint32_t takes = s->backward ? last : first, gives = first + last - takes;
    if (stream == takes && s->rules->caps &&
        done(b, stream) - done(b, gives) >= s->rules->caps[chunk])
        return false;
    holding *h = holding_of(b, stream);
    if (h->memory <= 0 || d->room == LH_NO_LIMIT)
        return true;
    int64_t spare;
    if (!is_safe_after(b, device, h, &spare))
        return false;
    if (!s->rules->reserve || d->one_takes[s->backward])
        return true;
    return leaves_room(b, device, pass, h, spare);
}

/* Caches has_memory() until the device runs another pass. */
static bool fits(const lhi_both_ways *b, coming *c)
{
    const uint32_t device = b->lanes[c->stream].device;
    const uint32_t ran = b->devices[device].count;
    if (c->asked != ran)
        c->fits = finds_room(b, device, c);
    c->asked = ran;
    return c->fits;
}

/* --- selection ----------------------------------------------------------- */

static coming *coming_of(const lhi_both_ways *b, uint32_t stream)
{
    return &b->state->coming[b->lanes[stream].way[0].slot];
}

/* Returns when the stream's next pass has its inputs; NEVER: unknown or none.
 */
static int64_t ready_at(const lhi_both_ways *b, uint32_t stream)
{
    const way_state *s = b->state;
    const lhi_way *way = &b->lanes[stream].way[s->backward];
    uint32_t m = done(b, stream);
    if (m == b->n)
        return NEVER;
    for (uint32_t i = 0; i < way->n_in; i++)
        if (s->next[way->in[i]] <= m)
            return NEVER;
    return s->ready[(size_t)stream * b->n + m];
}

/* Returns the duration of a stream's next pass, or W part. */
static int64_t time_of(const lhi_both_ways *b, uint32_t stream)
{
    int64_t time = b->lanes[stream].time_ns;
    uint32_t parts = b->state->n_parts;
    if (parts == 1 || !is_w(b, stream))
        return time;
    return lhi_share(time, b->state->next[stream] % parts, parts);
}

/* Updates the stream's next pass after one has run. */
static void go_on(const lhi_both_ways *b, uint32_t stream)
{
    coming *c = coming_of(b, stream);
    uint32_t m = done(b, stream);
    c->ready_ns = ready_at(b, stream);
    c->time_ns = time_of(b, stream);
    if (m < b->n)
        c->due_ns = b->due[(size_t)stream * b->n + m];
}

/* Delays a pass until its messages can leave immediately. */
static int64_t hold_back(const lhi_both_ways *b, uint32_t stream, int64_t at)
{
    const way_state *s = b->state;
    const lhi_lane *lane = &b->lanes[stream];
    const lhi_way *way = &lane->way[s->backward];
    for (uint32_t i = 0; i < way->n_out; i++)
        if (way->out[i].resource != LH_NONE)
            at = lhi_most(at, s->link[way->out[i].resource] - lane->time_ns);
    return at;
}

/* Applies greedy's rules: F until a D is ready, then alternate; W if nothing
 * else can start or memory blocks the preferred kind. Among several chunks
 * takes the furthest along the path. */
static uint32_t pick_in_turn(const lhi_both_ways *b, uint32_t device,
                             uint32_t n, int64_t at)
{
    const way_state *s = b->state;
    const coming *kinds[3] = {NULL, NULL, NULL};
    bool refused[3] = {false, false, false}, any_f = false;
    for (uint32_t i = 0; i < b->devices[device].n_streams; i++) {
        uint32_t stream = b->devices[device].sequence[i];
        any_f = any_f || (stream % b->kinds == 0 && done(b, stream) < b->n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const candidate *c = &s->list[i];
        uint32_t stream = c->pass->stream, kind = stream % b->kinds;
        if (c->start_ns > at)
            continue;
        if (!fits(b, c->pass))
            refused[kind] = true;
        else if (!kinds[kind] || (kind != 2 && stream > kinds[kind]->stream))
            kinds[kind] = c->pass;
    }
    uint32_t want = s->turn[device] == 0 ? 1 : 0;
    if (!any_f)
        want = 1;
    else if (!s->begun[device] && !kinds[1] && !refused[1])
        want = 0;
    if (kinds[want])
        return kinds[want]->stream;
    if (refused[want] && kinds[2])
        return kinds[2]->stream;
    const coming *c = kinds[1 - want] ? kinds[1 - want] : kinds[2];
    return c->stream;
}

/* Picks the pass with the earliest due date among those that can start by
 * `until`. */
static pick pick_due(const lhi_both_ways *b, uint32_t n, int64_t until)
{
    const way_state *s = b->state;
    pick best = {NEVER, LH_NONE};
    int64_t best_due = NEVER;
    for (uint32_t i = 0; i < n; i++) {
        const candidate *c = &s->list[i];
        if (c->start_ns > until)
            continue;
        const int64_t due = c->pass->due_ns;
        bool sooner = best.stream == LH_NONE || due < best_due ||
                      (due == best_due && c->start_ns < best.start_ns);
        if (sooner && fits(b, c->pass)) {
            best = (pick){c->start_ns, c->pass->stream};
            best_due = due;
        }
    }
    return best;
}

/* Return the earliest start, and the earliest end, among n candidates that fit.
 * The memory check is skipped for candidates later than one that fits. */
static int64_t first_start(const lhi_both_ways *b, uint32_t n)
{
    int64_t at = NEVER;
    for (uint32_t i = 0; i < n; i++) {
        const candidate *c = &b->state->list[i];
        if (c->start_ns < at && fits(b, c->pass))
            at = c->start_ns;
    }
    return at;
}

static int64_t first_end(const lhi_both_ways *b, uint32_t n)
{
    int64_t end = NEVER;
    for (uint32_t i = 0; i < n; i++) {
        const candidate *c = &b->state->list[i];
        int64_t ends = c->start_ns + c->pass->time_ns;
        if (ends < end && fits(b, c->pass))
            end = ends;
    }
    return end;
}

/* Picks a device's next pass into picks[device]. */
static void choose(lhi_both_ways *b, uint32_t device)
{
    way_state *s = b->state;
    const lhi_lane_device *d = &b->devices[device];
    const int64_t free_ns = s->free[device];
    coming *all = s->coming + d->first_slot;
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_streams; i++) {
        int64_t start = lhi_most(free_ns, all[i].ready_ns);
        if (start == NEVER)
            continue;
        if (s->rules->hold_back)
            start = hold_back(b, all[i].stream, start);
        s->list[n++] = (candidate){start, &all[i]};
    }
    const int64_t at = first_start(b, n);
    s->picks[device] = (pick){NEVER, LH_NONE};
    if (at == NEVER)
        return;
    if (s->rules->crosspipe) {
        s->picks[device] = (pick){at, pick_in_turn(b, device, n, at)};
        return;
    }
    /* Allows starts later than `at` by `patience` quarters of the time to the
     * first possible end. */
    int64_t wait = 0;
    if (s->rules->patience)
        wait = (first_end(b, n) - at) / 4 * s->rules->patience;
    s->picks[device] = pick_due(b, n, at + (wait > 0 ? wait - 1 : 0));
}

/* --- tournament tree over devices ---------------------------------------- */

/* Returns the device whose pick starts first; ties: `a`. */
static uint32_t sooner(const way_state *s, uint32_t a, uint32_t b)
{
    if (a == LH_NONE || b == LH_NONE)
        return a == LH_NONE ? b : a;
    return s->picks[b].start_ns < s->picks[a].start_ns ? b : a;
}

/* Updates the tree path above one device. */
static void replay(way_state *s, uint32_t device)
{
    for (uint32_t i = (s->leaves + device) / 2; i > 0; i /= 2)
        s->tree[i] = sooner(s, s->tree[2 * i], s->tree[2 * i + 1]);
}

/* Repeats the choice for a device and updates the tree. */
static void renew(lhi_both_ways *b, uint32_t device)
{
    choose(b, device);
    replay(b->state, device);
}

/* Builds the tree from scratch. */
static void seat_all(lhi_both_ways *b)
{
    way_state *s = b->state;
    for (uint32_t d = 0; d < s->leaves; d++)
        s->tree[s->leaves + d] = d < b->p->n_devices ? d : LH_NONE;
    for (uint32_t d = 0; d < b->p->n_devices; d++)
        choose(b, d);
    for (uint32_t i = s->leaves - 1; i > 0; i--)
        s->tree[i] = sooner(s, s->tree[2 * i], s->tree[2 * i + 1]);
}

bool lhi_way_state_make(lhi_both_ways *b)
{
    const lh_pipeline *p = b->p;
    way_state *s = LHI_NEW(b->mem, way_state, 1);
    uint32_t most = 1, leaves = 1;
    if (!s)
        return false;
    while (leaves < p->n_devices)
        leaves *= 2;
    for (uint32_t d = 0; d < p->n_devices; d++)
        if (b->devices[d].n_streams > most)
            most = b->devices[d].n_streams;
    *s = (way_state){
        .ready = LHI_NEW(b->mem, int64_t, (size_t)b->n_streams * b->n),
        .next = LHI_NEW(b->mem, uint32_t, b->n_streams),
        .free = LHI_NEW(b->mem, int64_t, p->n_devices),
        .held = LHI_NEW(b->mem, int64_t, p->n_devices),
        .turn = LHI_NEW(b->mem, uint8_t, p->n_devices),
        .begun = LHI_NEW(b->mem, bool, p->n_devices),
        .link = LHI_NEW(b->mem, int64_t, p->n_resources),
        .picks = LHI_NEW(b->mem, pick, p->n_devices),
        .tree = LHI_NEW(b->mem, uint32_t, 2 * (size_t)leaves),
        .leaves = leaves,
        .list = LHI_NEW(b->mem, candidate, most),
        .now = LHI_NEW(b->mem, holding, b->n_streams),
        .standing = LHI_NEW(b->mem, standing, most + 1),
        .coming = LHI_NEW(b->mem, coming, b->n_streams),
    };
    b->state = s;
    return s->ready && s->next && s->free && s->held && s->turn && s->begun &&
           s->link && s->picks && s->tree && s->list && s->now && s->coming &&
           s->standing;
}

/* --- run ----------------------------------------------------------------- */

/* Sends a pass's output to its consumers, over links where there are any. */
static void hand_on(lhi_both_ways *b, uint32_t stream, uint32_t m,
                    int64_t end_ns)
{
    way_state *s = b->state;
    const lhi_way *way = &b->lanes[stream].way[s->backward];
    for (uint32_t i = 0; i < way->n_out; i++) {
        const lhi_arc *arc = &way->out[i];
        int64_t at = end_ns;
        if (arc->resource != LH_NONE) {
            at = lhi_most(at, s->link[arc->resource]) + arc->transfer_ns;
            s->link[arc->resource] = at;
        }
        int64_t *ready = &s->ready[(size_t)arc->to * b->n + m];
        *ready = lhi_most(*ready, at + arc->latency_ns);
    }
}

/* Runs the device's pick, then updates the devices affected. */
static void place(lhi_both_ways *b, uint32_t device)
{
    way_state *s = b->state;
    pick p = s->picks[device];
    uint32_t m = done(b, p.stream), kind = p.stream % b->kinds;
    size_t number = (size_t)p.stream * b->n + m;
    int64_t end = p.start_ns + time_of(b, p.stream);
    lhi_lane_device *d = &b->devices[device];
    d->order[d->count++] = (uint32_t)number;
    s->free[device] = end;
    b->end_ns = lhi_most(b->end_ns, end);
    /* For a W in parts, the end of the last part determines the start. */
    b->start[number] = end - b->lanes[p.stream].time_ns;
    s->next[p.stream]++;
    if (s->n_parts == 1 || !is_w(b, p.stream) ||
        s->next[p.stream] % s->n_parts == 0)
        count(b, device, holding_of(b, p.stream), true);
    if (kind < 2)
        s->turn[device] = (uint8_t)kind;
    s->begun[device] = s->begun[device] || kind == 1;
    hand_on(b, p.stream, m, end);
    go_on(b, p.stream);
    const lhi_way *way = &b->lanes[p.stream].way[s->backward];
    for (uint32_t i = 0; i < way->n_out; i++) {
        uint32_t to = b->lanes[way->out[i].to].device;
        int64_t *ready_ns = &coming_of(b, way->out[i].to)->ready_ns;
        int64_t before_ns = *ready_ns;
        *ready_ns = ready_at(b, way->out[i].to);
        /* A pass that is not its stream's next one changes nothing yet. */
        if (to != device && (*ready_ns != before_ns || s->rules->hold_back))
            renew(b, to);
    }
    renew(b, device);
}

/* Resets all state before a run. */
static void reset(lhi_both_ways *b)
{
    way_state *s = b->state;
    const lh_pipeline *p = b->p;
    memset(s->ready, 0, (size_t)b->n_streams * b->n * sizeof *s->ready);
    memset(s->next, 0, b->n_streams * sizeof *s->next);
    memset(s->free, 0, p->n_devices * sizeof *s->free);
    memset(s->held, 0, p->n_devices * sizeof *s->held);
    memset(s->turn, 1, p->n_devices * sizeof *s->turn);
    memset(s->begun, 0, p->n_devices * sizeof *s->begun);
    memset(s->link, 0, p->n_resources * sizeof *s->link);
    for (uint32_t i = 0; i < b->n_streams; i++)
        *holding_of(b, i) = (holding){b->lanes[i].way[s->backward].memory, 0};
    for (uint32_t d = 0; d < p->n_devices; d++)
        b->devices[d].count = 0;
    b->end_ns = 0;
    for (uint32_t i = 0; i < b->n_streams; i++) {
        *coming_of(b, i) = (coming){.stream = i, .asked = UINT32_MAX};
        go_on(b, i);
    }
}

bool lhi_both_ways_run(lhi_both_ways *b, bool backward, uint32_t n_parts,
                       const lhi_way_rules *rules)
{
    way_state *s = b->state;
    const lh_pipeline *p = b->p;
    s->rules = rules;
    s->backward = b->is_backward = backward;
    s->n_parts = b->kinds == 3 ? n_parts : 1;
    reset(b);
    seat_all(b);
    uint64_t each = b->kinds - 1 + (b->kinds == 3 ? s->n_parts : 1);
    uint64_t left = each * p->n_chunks * b->n;
    for (; left > 0; left--) {
        uint32_t device = s->tree[1];
        if (s->picks[device].start_ns == NEVER)
            return false;
        place(b, device);
    }
    return true;
}

void lhi_both_ways_turn(lhi_both_ways *b)
{
    for (uint32_t i = 0; i < b->n_streams; i++) {
        int64_t *due = b->due + (size_t)i * b->n;
        const int64_t *start = b->start + (size_t)i * b->n;
        for (uint32_t m = 0; m < b->n; m++)
            due[m] = b->end_ns - start[b->n - 1 - m] - b->lanes[i].time_ns;
    }
}

/* Numbers the parts: each W occurs once per part in the order. */
static void number_parts(const lhi_both_ways *b, lhi_order *order,
                         uint32_t n_parts)
{
    uint32_t *next = b->state->next; /* reused as scratch; the run is over */
    memset(next, 0, b->n_streams * sizeof *next);
    for (uint32_t i = 0; i < order->count; i++) {
        lh_pass *pass = &order->passes[i];
        if (pass->kind != LH_W)
            continue;
        uint32_t *part = &next[pass->chunk * b->kinds];
        pass->part = (uint16_t)*part;
        pass->n_parts = (uint16_t)n_parts;
        *part = (*part + 1) % n_parts;
    }
}

void lhi_both_ways_orders(const lhi_both_ways *b, lhi_orders *out)
{
    static const lh_pass_kind split[3] = {LH_F, LH_D, LH_W};
    static const lh_pass_kind joint[2] = {LH_F, LH_B};
    const lh_pass_kind *kinds = b->kinds == 3 ? split : joint;
    uint32_t n_parts = b->state->n_parts;
    for (uint32_t i = 0; i < b->p->n_devices; i++) {
        const lhi_lane_device *d = &b->devices[i];
        lhi_order *order = &out->devices[i];
        order->count = 0;
        for (uint32_t k = 0; k < d->count; k++) {
            uint32_t number = d->order[b->is_backward ? d->count - 1 - k : k];
            uint32_t stream = number / b->n, m = number % b->n;
            lhi_put(order, kinds[stream % b->kinds], stream / b->kinds,
                    b->is_backward ? b->n - 1 - m : m);
        }
        if (n_parts > 1)
            number_parts(b, order, n_parts);
    }
}

uint64_t lhi_both_ways_cost(const lhi_both_ways *b)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < b->p->n_devices; i++) {
        const lhi_lane_device *d = &b->devices[i];
        uint64_t each = d->n_streams; /* streams scanned per pass */
        if (d->room != LH_NO_LIMIT && !(d->one_takes[0] && d->one_takes[1]))
            each *= (uint64_t)d->n_chunks * d->n_streams;
        cost += each * d->n_streams * b->n;
    }
    return cost;
}
