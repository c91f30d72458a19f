/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/methods/list_scheduler.h"

#include "base/integer_math.h"

#include <string.h>

/* As a time: never. */
#define NEVER INT64_MAX

/* The pass that a device runs next, and the limits by which it was picked. A
 * new candidate is compared with these (add_candidate()). */
typedef struct pick {
    int64_t start_ns; /* NEVER: no candidate at present */
    uint32_t stream;
    int64_t due_ns;
    int64_t first_ns; /* earliest start of a candidate that fits */
    int64_t end_ns;   /* earliest end of one; NEVER: not used */
    int64_t until_ns; /* latest start that was allowed */
} pick;

/* The next pass in a stream. */
typedef struct next_pass {
    int64_t ready_ns; /* inputs available; NEVER: unknown, or no next pass */
    int64_t time_ns, due_ns;
    uint32_t stream;
    uint32_t checked_count; /* device's pass count when .. */
    bool fits;              /* .. `fits` was evaluated */
} next_pass;

/* A pass that a device could run next. */
typedef struct candidate {
    int64_t start_ns;
    next_pass *pass;
} candidate;

/* Memory change per pass in a stream, and the number of completed microbatches.
 */
typedef struct stream_memory {
    int64_t memory;
    uint32_t done;
} stream_memory;

/* Prefix and suffix sums for the current device, per position in its stream
 * sequence. */
typedef struct position_sums {
    int64_t rise;             /* max. rise for a microbatch from here on */
    int64_t held_after;       /* memory held by completed passes from here on */
    int64_t held_before;      /* held by one microbatch up to here */
    uint32_t most_completed;  /* max. completed in any stream from here on */
    uint32_t least_completed; /* min. completed in any stream before here */
} position_sums;

/* State for one list scheduler run. */
typedef struct lhi_list_scheduler_state {
    const lhi_list_scheduler_rules *rules;
    bool backward;
    uint32_t n_parts;
    int64_t *ready;     /* [stream * n + microbatch]: inputs available so far */
    uint32_t *next;     /* per stream: passes run; W: parts */
    stream_memory *now; /* per slot in this direction */
    next_pass *coming;  /* per forward slot, in both directions */
    int64_t *free;      /* per device */
    int64_t *held;      /* per device: memory, complete passes only */
    uint8_t *last_kind; /* per device: kind of its last F or D */
    bool *has_run_d;    /* per device: a D has run */
    int64_t *link;      /* per resource: free from this time */
    pick *picks;        /* per device */
    uint32_t *tree, leaves;
    candidate *list;         /* candidates on the current device */
    candidate *allocating;   /* scratch: those that take memory */
    position_sums *standing; /* sums for the current device, one extra entry */
} list_state;

/* Checks whether a stream (all same-kind passes on one chunk) consists of W
 * passes. */
static bool is_w(const lhi_list_scheduler *b, uint32_t stream)
{
    return b->kinds == 3 && stream % 3 == 2;
}

/* Returns the memory record of a stream (all same-kind passes on one chunk) in
 * the current direction of time. */
static stream_memory *get_stream_memory(const lhi_list_scheduler *b,
                                        uint32_t stream)
{
    const list_state *s = b->state;
    return &s->now[b->streams[stream].direction[s->backward].slot];
}

/* Returns how many microbatches have completed their pass in the stream (all
 * same-kind passes on one chunk). */
static uint32_t count_done(const lhi_list_scheduler *b, uint32_t stream)
{
    return get_stream_memory(b, stream)->done;
}

/* --- memory -------------------------------------------------------------- */

/* Fills s->standing, the prefix and suffix sums of memory changes and completed
 * passes at each position of a microbatch's path through the device's n
 * streams. can_finish() reads them. */
static void fill_position_sums(const list_state *s, const stream_memory *now,
                               uint32_t n)
{
    position_sums *at = s->standing;
    at[n].rise = at[n].held_after = 0;
    at[n].most_completed = 0;
    for (uint32_t i = n; i-- > 0;) {
        const int64_t rise = at[i + 1].rise + now[i].memory;
        const uint32_t done = now[i].done, most = at[i + 1].most_completed;
        at[i].rise = rise > 0 ? rise : 0;
        at[i].held_after = at[i + 1].held_after + now[i].memory * (int64_t)done;
        at[i].most_completed = most > done ? most : done;
    }
    at[0].held_before = 0;
    at[0].least_completed = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t done = now[i].done, least = at[i].least_completed;
        at[i + 1].held_before = at[i].held_before + now[i].memory;
        at[i + 1].least_completed = least < done ? least : done;
    }
}

/* Checks whether microbatch m, which last completed stream number i, can run
 * its remaining passes with `room` bytes plus the memory that earlier
 * microbatches release. Its memory rises in the streams from i on, and in
 * earlier ones that lag behind (W may). Lowers *spare to the memory then left
 * over, for m and the later microbatches below n that have completed the same
 * passes. */
static bool can_finish(const list_state *s, const stream_memory *now,
                       uint32_t i, uint32_t m, uint32_t n, int64_t room,
                       int64_t *spare)
{
    const position_sums *at = s->standing;
    while (at[i].most_completed > m)
        i++;
    while (i > 0 && now[i - 1].done <= m)
        i--;
    int64_t rise = at[i].rise, each = 0;
    room += at[i].held_after;
    for (; at[i].least_completed <= m; i--) {
        const stream_memory *h = &now[i - 1];
        if (h->done > m) {
            each += h->memory;
            continue;
        }
        room += h->memory * (int64_t)h->done;
        rise = lhi_max_int64(rise + h->memory, 0);
    }
    each += at[i].held_before; /* held by a microbatch as far as m */
    room += each * (int64_t)m - rise;
    *spare = lhi_min_int64(*spare, each < 0 ? room + each * (n - 1 - m) : room);
    return room >= 0;
}

/* Checks with Dijkstra's banker's algorithm whether all microbatches can
 * finish one after another, each with the free memory and the memory that
 * earlier ones release. Among microbatches with the same completed passes, the
 * first has least memory.
 *
 * On success each microbatch leaves at least *spare. Further passes that
 * together take at most *spare are therefore also safe. */
static bool is_safe(const lhi_list_scheduler *b, uint32_t device,
                    int64_t *spare)
{
    const list_state *s = b->state;
    const lhi_stream_device *d = &b->devices[device];
    const uint32_t n = d->n_streams;
    const stream_memory *now = s->now + d->first_slot;
    int64_t room = d->room - s->held[device];
    if (room < 0)
        return false;
    *spare = room - d->microbatch_peak[s->backward];
    if (*spare >= 0)
        return true;
    *spare = room;
    if (d->only_first_allocates[s->backward])
        return true;
    fill_position_sums(s, now, n);
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

/* With `on`, counts one more completed pass in the stream with memory record
 * `h`, and adds its memory change to the device; otherwise reverts that. */
static void count_pass(const lhi_list_scheduler *b, uint32_t device,
                       stream_memory *h, bool on)
{
    h->done += on ? 1 : UINT32_MAX;
    b->state->held[device] += on ? h->memory : -h->memory;
}

/* Checks whether the device's memory state is still safe (see is_safe()) after
 * one more pass in the stream with memory record `h`. *spare: memory that
 * further passes may take without a new check. */
static bool is_safe_after(const lhi_list_scheduler *b, uint32_t device,
                          stream_memory *h, int64_t *spare)
{
    count_pass(b, device, h, true);
    bool safe = is_safe(b, device, spare);
    count_pass(b, device, h, false);
    return safe;
}

/* Checks whether the device's passes that are due before `pass` would still fit
 * into memory after it; `of`: memory record of the stream of `pass`. Passes
 * that take at most `spare` bytes need no check. */
static bool leaves_reserve(const lhi_list_scheduler *b, uint32_t device,
                           const next_pass *pass, stream_memory *of,
                           int64_t spare)
{
    const list_state *s = b->state;
    const lhi_stream_device *d = &b->devices[device];
    const next_pass *all = s->coming + d->first_slot;
    stream_memory *now = s->now + d->first_slot;
    bool room = true;
    count_pass(b, device, of, true);
    for (uint32_t i = 0; i < d->n_streams && room; i++) {
        stream_memory *h = &now[s->backward ? d->n_streams - 1 - i : i];
        int64_t left;
        if (h->memory > spare && h != of && h->done < b->n &&
            all[i].due_ns < pass->due_ns)
            room = is_safe_after(b, device, h, &left);
    }
    count_pass(b, device, of, false);
    return room;
}

/* Checks whether a device may run `pass` now: the chunk's cap on microbatches
 * in flight, memory safety, and memory left for passes with earlier due
 * dates. */
static bool has_memory(const lhi_list_scheduler *b, uint32_t device,
                       const next_pass *pass)
{
    const list_state *s = b->state;
    const lhi_stream_device *d = &b->devices[device];
    const uint32_t stream = pass->stream;
    uint32_t chunk = stream / b->kinds;
    uint32_t first = chunk * b->kinds, last = first + b->kinds - 1;
    uint32_t takes = s->backward ? last : first, gives = first + last - takes;
    if (stream == takes && s->rules->caps &&
        count_done(b, stream) - count_done(b, gives) >= s->rules->caps[chunk])
        return false;
    stream_memory *h = get_stream_memory(b, stream);
    if (h->memory <= 0 || d->room == LH_NO_LIMIT)
        return true;
    int64_t spare;
    if (!is_safe_after(b, device, h, &spare))
        return false;
    if (!s->rules->reserve || d->only_first_allocates[s->backward])
        return true;
    return leaves_reserve(b, device, pass, h, spare);
}

/* Checks has_memory() for the stream's next pass `c`, and keeps the result in
 * `c` until the device has run another pass. */
static bool fits(const lhi_list_scheduler *b, next_pass *c)
{
    const uint32_t device = b->streams[c->stream].device;
    const uint32_t ran = b->devices[device].count;
    if (c->checked_count != ran)
        c->fits = has_memory(b, device, c);
    c->checked_count = ran;
    return c->fits;
}

/* --- selection ----------------------------------------------------------- */

/* Returns the record of the next pass of a stream (all same-kind passes on one
 * chunk). */
static next_pass *get_next_pass(const lhi_list_scheduler *b, uint32_t stream)
{
    return &b->state->coming[b->streams[stream].direction[0].slot];
}

/* Returns the time in ns from which the stream's next pass has its inputs;
 * NEVER: unknown, or no pass left. */
static int64_t get_ready_time(const lhi_list_scheduler *b, uint32_t stream)
{
    const list_state *s = b->state;
    const lhi_stream_direction *way =
        &b->streams[stream].direction[s->backward];
    uint32_t m = count_done(b, stream);
    if (m == b->n)
        return NEVER;
    for (uint32_t i = 0; i < way->n_in; i++)
        if (s->next[way->in[i]] <= m)
            return NEVER;
    return s->ready[(size_t)stream * b->n + m];
}

/* Returns the duration in ns of a stream's next pass: for a divided W, that of
 * one part. */
static int64_t get_duration(const lhi_list_scheduler *b, uint32_t stream)
{
    int64_t time = b->streams[stream].time_ns;
    uint32_t parts = b->state->n_parts;
    if (parts == 1 || !is_w(b, stream))
        return time;
    return lhi_split_evenly(time, b->state->next[stream] % parts, parts);
}

/* Determines, after a pass of the stream has run, the stream's next pass and
 * the time at which that has its inputs. */
static void update_next_pass(const lhi_list_scheduler *b, uint32_t stream)
{
    next_pass *c = get_next_pass(b, stream);
    uint32_t m = count_done(b, stream);
    c->ready_ns = get_ready_time(b, stream);
    c->time_ns = get_duration(b, stream);
    if (m < b->n)
        c->due_ns = b->due[(size_t)stream * b->n + m];
}

/* Delays start `at` (ns) of the stream's next pass until its output would find
 * every outgoing link free at the pass's end. Returns the delayed start in ns.
 * */
static int64_t hold_back(const lhi_list_scheduler *b, uint32_t stream,
                         int64_t at)
{
    const list_state *s = b->state;
    const lhi_pass_stream *lane = &b->streams[stream];
    const lhi_stream_direction *way = &lane->direction[s->backward];
    for (uint32_t i = 0; i < way->n_out; i++)
        if (way->out[i].resource != LH_NONE)
            at = lhi_max_int64(at,
                               s->link[way->out[i].resource] - lane->time_ns);
    return at;
}

/* Returns the stream that the rules of method "greedy" pick among the first n
 * candidates that start by `at` (ns). F until a D is ready, then D and F
 * alternate; W if nothing else can start, or if memory blocks the preferred
 * kind. Among several chunks it picks the last along the model. */
static uint32_t pick_greedily(const lhi_list_scheduler *b, uint32_t device,
                              uint32_t n, int64_t at)
{
    const list_state *s = b->state;
    const next_pass *kinds[3] = {NULL, NULL, NULL};
    bool refused[3] = {false, false, false}, any_f = false;
    for (uint32_t i = 0; i < b->devices[device].n_streams; i++) {
        uint32_t stream = b->devices[device].sequence[i];
        any_f =
            any_f || (stream % b->kinds == 0 && count_done(b, stream) < b->n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const candidate *c = &s->list[i];
        uint32_t stream = c->pass->stream, kind = stream % b->kinds;
        if (c->start_ns > at)
            continue;
        if (!fits(b, c->pass))
            refused[kind] = true;
        else if (!kinds[kind] || (kind == 2 ? c->pass < kinds[2]
                                            : stream > kinds[kind]->stream))
            kinds[kind] = c->pass;
    }
    uint32_t want = s->last_kind[device] == 0 ? 1 : 0;
    if (!any_f)
        want = 1;
    else if (!s->has_run_d[device] && !kinds[1] && !refused[1])
        want = 0;
    if (kinds[want])
        return kinds[want]->stream;
    if (refused[want] && kinds[2])
        return kinds[2]->stream;
    const next_pass *c = kinds[1 - want] ? kinds[1 - want] : kinds[2];
    return c->stream;
}

/* Picks, among the first n candidates that can start by `until` (ns) and fit
 * into memory, the one with the earliest due date; ties: the earlier start,
 * then the device's sequence. pick.stream is LH_NONE if there is none. */
static pick pick_by_due_date(const lhi_list_scheduler *b, uint32_t n,
                             int64_t until)
{
    const list_state *s = b->state;
    const next_pass *first = NULL;
    pick best = {.start_ns = NEVER, .stream = LH_NONE, .due_ns = NEVER};
    for (uint32_t i = 0; i < n; i++) {
        const candidate *c = &s->list[i];
        if (c->start_ns > until)
            continue;
        const int64_t due = c->pass->due_ns;
        bool sooner = !first || due < best.due_ns ||
                      (due == best.due_ns &&
                       (c->start_ns < best.start_ns ||
                        (c->start_ns == best.start_ns && c->pass < first)));
        if (sooner && fits(b, c->pass)) {
            first = c->pass;
            best.start_ns = c->start_ns;
            best.stream = c->pass->stream;
            best.due_ns = due;
        }
    }
    return best;
}

/* Returns the earliest start among the first n candidates (passes that a device
 * could run next) that fit into memory; NEVER: none. Candidates later than one
 * that fits are not checked. */
static int64_t find_first_start(const lhi_list_scheduler *b, uint32_t n)
{
    int64_t at = NEVER;
    for (uint32_t i = 0; i < n; i++) {
        const candidate *c = &b->state->list[i];
        if (c->start_ns < at && fits(b, c->pass))
            at = c->start_ns;
    }
    return at;
}

/* Returns the earliest end among the first n candidates (passes that a device
 * could run next) that fit into memory; NEVER: none. */
static int64_t find_first_end(const lhi_list_scheduler *b, uint32_t n)
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

/* Picks the pass that a device runs next, by the rules of method "greedy" or by
 * due date, and stores it in picks[device]. */
static void choose_pass(lhi_list_scheduler *b, uint32_t device)
{
    list_state *s = b->state;
    const lhi_stream_device *d = &b->devices[device];
    const int64_t free_ns = s->free[device];
    next_pass *all = s->coming + d->first_slot;
    const stream_memory *now = s->now + d->first_slot;
    const bool unlimited = d->room == LH_NO_LIMIT;
    uint32_t n = 0, n_allocating = 0;
    for (uint32_t i = 0; i < d->n_streams; i++) {
        int64_t start = lhi_max_int64(free_ns, all[i].ready_ns);
        if (start == NEVER)
            continue;
        if (s->rules->delay_sends)
            start = hold_back(b, all[i].stream, start);
        /* Checking the memory of passes that allocate is costly, so they come
         * last: earlier candidates exclude many of them. */
        const uint32_t slot = s->backward ? d->n_streams - 1 - i : i;
        if (unlimited || now[slot].memory <= 0)
            s->list[n++] = (candidate){start, &all[i]};
        else
            s->allocating[n_allocating++] = (candidate){start, &all[i]};
    }
    memcpy(s->list + n, s->allocating, n_allocating * sizeof *s->list);
    n += n_allocating;
    const int64_t at = find_first_start(b, n);
    pick *out = &s->picks[device];
    *out = (pick){NEVER, LH_NONE, NEVER, at, NEVER, at};
    if (at == NEVER)
        return;
    if (s->rules->greedy) {
        out->start_ns = at;
        out->stream = pick_greedily(b, device, n, at);
        return;
    }
    /* Allows starts later than `at` by `patience` quarters of the time to the
     * first possible end. */
    int64_t wait = 0, end = NEVER;
    if (s->rules->patience) {
        end = find_first_end(b, n);
        wait = (end - at) / 4 * s->rules->patience;
    }
    const int64_t until = at + (wait > 0 ? wait - 1 : 0);
    *out = pick_by_due_date(b, n, until);
    out->first_ns = at;
    out->end_ns = end;
    out->until_ns = until;
}

/* Updates a device's pick after the inputs of `pass` have become known, which
 * makes it a candidate; nothing else has changed on the device. The pick is the
 * same as that of choose_pass(). Returns whether its start may have changed. */
static bool add_candidate(lhi_list_scheduler *b, uint32_t device,
                          next_pass *pass)
{
    list_state *s = b->state;
    pick *now = &s->picks[device];
    const int64_t start = lhi_max_int64(s->free[device], pass->ready_ns);
    const bool earlier =
        start < now->first_ns ||
        (!s->rules->greedy && s->rules->patience && start < now->end_ns &&
         start + pass->time_ns < now->end_ns);
    if (!earlier && start > now->until_ns)
        return false;
    /* Greedy's rules also depend on candidates that do not fit. */
    if (earlier || s->rules->greedy) {
        choose_pass(b, device);
        return true;
    }
    if (pass->due_ns > now->due_ns ||
        (pass->due_ns == now->due_ns && start > now->start_ns))
        return false;
    if (pass->due_ns == now->due_ns && start == now->start_ns &&
        pass > get_next_pass(b, now->stream))
        return false; /* ties: the first in the device's sequence */
    if (!fits(b, pass))
        return false;
    now->start_ns = start;
    now->stream = pass->stream;
    now->due_ns = pass->due_ns;
    return true;
}

/* --- tournament tree over devices ---------------------------------------- */

/* Returns the device whose picked pass starts first; ties: `a`. */
static uint32_t get_earlier_device(const list_state *s, uint32_t a, uint32_t b)
{
    if (a == LH_NONE || b == LH_NONE)
        return a == LH_NONE ? b : a;
    return s->picks[b].start_ns < s->picks[a].start_ns ? b : a;
}

/* Updates the tournament tree (device with the earliest pick) on the path
 * above one device. */
static void update_tree(list_state *s, uint32_t device)
{
    for (uint32_t i = (s->leaves + device) / 2; i > 0; i /= 2)
        s->tree[i] = get_earlier_device(s, s->tree[2 * i], s->tree[2 * i + 1]);
}

/* Lets a device pick its next pass again, since its candidates have changed,
 * and updates the tournament tree. */
static void update_device(lhi_list_scheduler *b, uint32_t device)
{
    choose_pass(b, device);
    update_tree(b->state, device);
}

/* Lets every device pick a pass and builds the picks' tournament tree. */
static void build_tree(lhi_list_scheduler *b)
{
    list_state *s = b->state;
    for (uint32_t d = 0; d < s->leaves; d++)
        s->tree[s->leaves + d] = d < b->p->n_devices ? d : LH_NONE;
    for (uint32_t d = 0; d < b->p->n_devices; d++)
        choose_pass(b, d);
    for (uint32_t i = s->leaves - 1; i > 0; i--)
        s->tree[i] = get_earlier_device(s, s->tree[2 * i], s->tree[2 * i + 1]);
}

bool lhi_list_scheduler_make_state(lhi_list_scheduler *b)
{
    const lh_pipeline *p = b->p;
    list_state *s = LHI_NEW(b->mem, list_state, 1);
    uint32_t most = 1, leaves = 1;
    if (!s)
        return false;
    while (leaves < p->n_devices)
        leaves *= 2;
    for (uint32_t d = 0; d < p->n_devices; d++)
        if (b->devices[d].n_streams > most)
            most = b->devices[d].n_streams;
    *s = (list_state){
        .ready = LHI_NEW(b->mem, int64_t, (size_t)b->n_streams * b->n),
        .next = LHI_NEW(b->mem, uint32_t, b->n_streams),
        .free = LHI_NEW(b->mem, int64_t, p->n_devices),
        .held = LHI_NEW(b->mem, int64_t, p->n_devices),
        .last_kind = LHI_NEW(b->mem, uint8_t, p->n_devices),
        .has_run_d = LHI_NEW(b->mem, bool, p->n_devices),
        .link = LHI_NEW(b->mem, int64_t, p->n_resources),
        .picks = LHI_NEW(b->mem, pick, p->n_devices),
        .tree = LHI_NEW(b->mem, uint32_t, 2 * (size_t)leaves),
        .leaves = leaves,
        .list = LHI_NEW(b->mem, candidate, most),
        .allocating = LHI_NEW(b->mem, candidate, most),
        .now = LHI_NEW(b->mem, stream_memory, b->n_streams),
        .standing = LHI_NEW(b->mem, position_sums, most + 1),
        .coming = LHI_NEW(b->mem, next_pass, b->n_streams),
    };
    b->state = s;
    return s->ready && s->next && s->free && s->held && s->last_kind &&
           s->has_run_d && s->link && s->picks && s->tree && s->list &&
           s->allocating && s->now && s->coming && s->standing;
}

/* --- run ----------------------------------------------------------------- */

/* Sends the output from a stream's pass on microbatch m, which ended at end_ns,
 * to its consumers, over links where there are any. */
static void send_output(lhi_list_scheduler *b, uint32_t stream, uint32_t m,
                        int64_t end_ns)
{
    list_state *s = b->state;
    const lhi_stream_direction *way =
        &b->streams[stream].direction[s->backward];
    for (uint32_t i = 0; i < way->n_out; i++) {
        const lhi_stream_arc *arc = &way->out[i];
        int64_t at = end_ns;
        if (arc->resource != LH_NONE) {
            at = lhi_max_int64(at, s->link[arc->resource]) + arc->transfer_ns;
            s->link[arc->resource] = at;
        }
        int64_t *ready = &s->ready[(size_t)arc->to * b->n + m];
        *ready = lhi_max_int64(*ready, at + arc->latency_ns);
    }
}

/* Runs the pass that the device has picked; then every device whose candidate
 * passes have changed picks again. */
static void run_pick(lhi_list_scheduler *b, uint32_t device)
{
    list_state *s = b->state;
    pick p = s->picks[device];
    uint32_t m = count_done(b, p.stream), kind = p.stream % b->kinds;
    size_t number = (size_t)p.stream * b->n + m;
    int64_t end = p.start_ns + get_duration(b, p.stream);
    lhi_stream_device *d = &b->devices[device];
    d->order[d->count++] = (uint32_t)number;
    s->free[device] = end;
    b->end_ns = lhi_max_int64(b->end_ns, end);
    /* For a W in parts, the last part's end determines the start. */
    b->start[number] = end - b->streams[p.stream].time_ns;
    s->next[p.stream]++;
    if (s->n_parts == 1 || !is_w(b, p.stream) ||
        s->next[p.stream] % s->n_parts == 0)
        count_pass(b, device, get_stream_memory(b, p.stream), true);
    if (kind < 2)
        s->last_kind[device] = (uint8_t)kind;
    s->has_run_d[device] = s->has_run_d[device] || kind == 1;
    send_output(b, p.stream, m, end);
    update_next_pass(b, p.stream);
    const lhi_stream_direction *way =
        &b->streams[p.stream].direction[s->backward];
    for (uint32_t i = 0; i < way->n_out; i++) {
        uint32_t to = b->streams[way->out[i].to].device;
        next_pass *reader = get_next_pass(b, way->out[i].to);
        int64_t before_ns = reader->ready_ns;
        reader->ready_ns = get_ready_time(b, way->out[i].to);
        if (to == device)
            continue;
        /* A pass that is not its stream's next one changes nothing yet. With
         * delayed sends, the link's state changes other starts. */
        if (s->rules->delay_sends)
            update_device(b, to);
        else if (reader->ready_ns != before_ns && add_candidate(b, to, reader))
            update_tree(s, to);
    }
    update_device(b, device);
}

/* Resets devices, streams and links to the state before the first pass, for a
 * run in the current direction of time. */
static void reset(lhi_list_scheduler *b)
{
    list_state *s = b->state;
    const lh_pipeline *p = b->p;
    memset(s->ready, 0, (size_t)b->n_streams * b->n * sizeof *s->ready);
    memset(s->next, 0, b->n_streams * sizeof *s->next);
    memset(s->free, 0, p->n_devices * sizeof *s->free);
    memset(s->held, 0, p->n_devices * sizeof *s->held);
    memset(s->last_kind, 1, p->n_devices * sizeof *s->last_kind);
    memset(s->has_run_d, 0, p->n_devices * sizeof *s->has_run_d);
    memset(s->link, 0, p->n_resources * sizeof *s->link);
    for (uint32_t i = 0; i < b->n_streams; i++)
        *get_stream_memory(b, i) =
            (stream_memory){b->streams[i].direction[s->backward].memory, 0};
    for (uint32_t d = 0; d < p->n_devices; d++)
        b->devices[d].count = 0;
    b->end_ns = 0;
    for (uint32_t i = 0; i < b->n_streams; i++) {
        *get_next_pass(b, i) =
            (next_pass){.stream = i, .checked_count = UINT32_MAX};
        update_next_pass(b, i);
    }
}

bool lhi_list_scheduler_run(lhi_list_scheduler *b, bool backward,
                            uint32_t n_parts,
                            const lhi_list_scheduler_rules *rules)
{
    list_state *s = b->state;
    const lh_pipeline *p = b->p;
    s->rules = rules;
    s->backward = b->is_backward = backward;
    s->n_parts = b->kinds == 3 ? n_parts : 1;
    reset(b);
    build_tree(b);
    uint64_t each = b->kinds - 1 + (b->kinds == 3 ? s->n_parts : 1);
    uint64_t left = each * p->n_chunks * b->n;
    for (; left > 0; left--) {
        uint32_t device = s->tree[1];
        if (s->picks[device].start_ns == NEVER)
            return false;
        run_pick(b, device);
    }
    return true;
}

void lhi_list_scheduler_reverse_due_dates(lhi_list_scheduler *b)
{
    for (uint32_t i = 0; i < b->n_streams; i++) {
        int64_t *due = b->due + (size_t)i * b->n;
        const int64_t *start = b->start + (size_t)i * b->n;
        for (uint32_t m = 0; m < b->n; m++)
            due[m] = b->end_ns - start[b->n - 1 - m] - b->streams[i].time_ns;
    }
}

/* Numbers each W's parts in a device's order, since each W occurs once per
 * part. */
static void number_parts(const lhi_list_scheduler *b, lhi_order *order,
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

void lhi_list_scheduler_write_orders(const lhi_list_scheduler *b,
                                     lhi_orders *out)
{
    static const lh_pass_kind split[3] = {LH_F, LH_D, LH_W};
    static const lh_pass_kind joint[2] = {LH_F, LH_B};
    const lh_pass_kind *kinds = b->kinds == 3 ? split : joint;
    uint32_t n_parts = b->state->n_parts;
    for (uint32_t i = 0; i < b->p->n_devices; i++) {
        const lhi_stream_device *d = &b->devices[i];
        lhi_order *order = &out->devices[i];
        order->count = 0;
        for (uint32_t k = 0; k < d->count; k++) {
            uint32_t number = d->order[b->is_backward ? d->count - 1 - k : k];
            uint32_t stream = number / b->n, m = number % b->n;
            lhi_order_add_pass(order, kinds[stream % b->kinds],
                               stream / b->kinds,
                               b->is_backward ? b->n - 1 - m : m);
        }
        if (n_parts > 1)
            number_parts(b, order, n_parts);
    }
}

uint64_t lhi_list_scheduler_estimate_cost(const lhi_list_scheduler *b)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < b->p->n_devices; i++) {
        const lhi_stream_device *d = &b->devices[i];
        uint64_t each = d->n_streams; /* streams scanned per pass */
        if (d->room != LH_NO_LIMIT &&
            !(d->only_first_allocates[0] && d->only_first_allocates[1]))
            each *= (uint64_t)d->n_chunks * d->n_streams;
        cost += each * d->n_streams * b->n;
    }
    return cost;
}
