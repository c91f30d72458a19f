/* SPDX-License-Identifier: Apache-2.0 */
/* Explains an iteration's duration: idle time by cause, critical path, link use
 * and slackness. */
#include "schedule/simulator/timeline_index.h"

#include <longhaul/experimental/analysis.h>
#include <string.h>

/* An analysis result; all memory belongs to `mem`. */
struct lh_analysis {
    lhi_arena *mem;
    int64_t *idle; /* [(n_devices + 1) * LH_N_CAUSES]; last row: total */
    uint32_t n_devices, n_segments, n_links, n_slacks;
    lh_segment *segments;
    lh_link_use *links;
    lh_slack *slacks;
};

static const char *const cause_names[] = {
#define CAUSE_NAME(name, id, text) id,
    LH_CAUSE_LIST(CAUSE_NAME)
#undef CAUSE_NAME
};

static const char *const cause_texts[] = {
#define CAUSE_TEXT(name, id, text) text,
    LH_CAUSE_LIST(CAUSE_TEXT)
#undef CAUSE_TEXT
};

/* Returns the name of a cause of idle time; static storage. */
const char *lh_cause_name(lh_cause cause)
{
    return (int)cause < LH_N_CAUSES ? cause_names[cause] : "unknown";
}

const char *lh_cause_about(lh_cause cause)
{
    return (int)cause < LH_N_CAUSES ? cause_texts[cause] : "unknown";
}

/* Returns the name of a kind of critical-path segment; static storage. */
const char *lh_segment_name(lh_segment_kind kind)
{
    switch (kind) {
    case LH_SEGMENT_PASS:
        return "pass";
    case LH_SEGMENT_TRANSFER:
        return "transfer";
    case LH_SEGMENT_LATENCY:
        return "latency";
    case LH_SEGMENT_HEAD_OF_LINE:
        return "head_of_line";
    case LH_SEGMENT_COPY:
        return "copy";
    default:
        return "collective";
    }
}

/* --- idle time by cause ------------------------------------------------- */

/* Adds the time from *from to `until` to the idle time for `cause` and advances
 * *from to `until`. */
static void attribute(int64_t *idle, lh_cause cause, int64_t *from,
                      int64_t until)
{
    if (until > *from) {
        idle[cause] += until - *from;
        *from = until;
    }
}

/* Returns the time in ns from which the device's next forward, pass number
 * `next`, had its input but did not fit: it would raise the memory in use,
 * `memory`, above the limit. INT64_MAX: it fits, or the next pass is no
 * forward. */
static int64_t find_memory_block_start(const lhi_timeline_index *f, uint32_t d,
                                       uint32_t next, int64_t memory)
{
    if (next == LH_NONE)
        return INT64_MAX;
    const lh_timeline_run *run = lhi_timeline_get_run(f->t, d, next);
    const lh_chunk *chunk = &f->p->chunks[run->pass.chunk];
    if (memory + chunk->mem_f <= f->t->memory_limits[d])
        return INT64_MAX;
    if (run->message != LH_NONE)
        return f->t->messages[run->message].arrive_ns;
    if (lhi_is_first_chunk(f->p, run->pass.chunk))
        return 0;
    lh_pass producer = run->pass;
    producer.chunk--;
    uint32_t at = lhi_timeline_find_run(f, &producer);
    const lh_timeline_run *made =
        lhi_timeline_get_run(f->t, f->p->chunks[producer.chunk].device, at);
    return made->end_ns;
}

/* Returns the last offload copy that the pass waits for; NULL: none. */
static const lh_offload_copy *find_copy_before(const lhi_timeline_index *f,
                                               const lh_timeline_run *run)
{
    uint32_t i = f->copied ? f->copied[run - f->t->runs] : LH_NONE;
    return i == LH_NONE ? NULL : &f->t->copies[i];
}

/* Adds the wait from `from` to the pass's start to idle[], as a wait for an
 * offload copy or for data-parallel communication. Called for the wait after
 * the message's arrival, or for all of it without a message. */
static void attribute_rest(const lhi_timeline_index *f,
                           const lh_timeline_run *run, int64_t from,
                           int64_t *idle)
{
    const lh_offload_copy *copy = find_copy_before(f, run);
    int64_t until = run->start_ns;
    if (copy && copy->end_ns == until)
        attribute(idle, LH_CAUSE_COPY, &from, until);
    attribute(idle, LH_CAUSE_DATA_PARALLEL, &from, until);
}

/* Returns the message that a pass waits for; LH_NONE: none. For an overlapped
 * pair's F, which starts with its B, this is the later message. */
static uint32_t find_awaited_message(const lhi_timeline_index *f,
                                     const lh_timeline_run *run)
{
    uint32_t a = run->message;
    if (run->pass.kind != LH_F || !lhi_is_overlapped(f->p, &run->pass))
        return a;
    uint32_t b = run[1].message;
    if (a == LH_NONE || b == LH_NONE)
        return a == LH_NONE ? b : a;
    return f->t->messages[b].arrive_ns > f->t->messages[a].arrive_ns ? b : a;
}

/* Splits the idle time before one pass, from time `from` on, by cause into
 * idle[]. blocked_since: time from which a forward had its input but exceeded
 * the memory limit. */
static void attribute_gap(const lhi_timeline_index *f,
                          const lh_timeline_run *run, int64_t from,
                          int64_t blocked_since, int64_t *idle)
{
    const lh_timeline *t = f->t;
    int64_t until = run->start_ns;
    if (from >= until)
        return;
    uint32_t message = find_awaited_message(f, run);
    if (message == LH_NONE) {
        attribute_rest(f, run, from, idle);
        return;
    }
    const lh_message *m = &t->messages[message];
    const lh_timeline_run *producer = lhi_timeline_get_run(
        t, m->from, lhi_timeline_find_run(f, &m->producer));
    int64_t produced = m->produced_ns < until ? m->produced_ns : until;
    if (run->pass.kind != LH_F) {
        attribute(idle, LH_CAUSE_DEPENDENCY, &from,
                  blocked_since < produced ? blocked_since : produced);
        attribute(idle, LH_CAUSE_MEMORY, &from, produced);
    }
    attribute(idle, LH_CAUSE_DEPENDENCY, &from, produced);
    attribute(idle, LH_CAUSE_HEAD_OF_LINE, &from, producer->issued_ns);
    attribute(idle, LH_CAUSE_LATE_RECEIVE, &from, m->ready_ns);
    attribute(idle, LH_CAUSE_QUEUE, &from, m->depart_ns);
    attribute(idle, LH_CAUSE_TRANSFER, &from, m->sent_ns);
    attribute(idle, LH_CAUSE_LATENCY, &from, m->arrive_ns);
    attribute_rest(f, run, from, idle);
}

/* Adds device d's idle time by cause to idle[]. `memory`: the device's static
 * memory, in use before its first pass. */
static lh_status attribute_device(const lhi_timeline_index *f, lhi_arena *mem,
                                  uint32_t d, int64_t memory, int64_t *idle,
                                  lh_error *err)
{
    const lh_timeline *t = f->t;
    uint32_t count = lhi_timeline_count_runs(t, d);
    lhi_mark mark = lhi_arena_mark(mem);
    uint32_t *next_f = LHI_NEW(mem, uint32_t, (size_t)count + 1);
    if (!next_f)
        return lhi_fail_nomem(err);
    next_f[count] = LH_NONE;
    for (uint32_t i = count; i-- > 0;)
        next_f[i] = lhi_timeline_get_run(t, d, i)->pass.kind == LH_F
                        ? i
                        : next_f[i + 1];
    int64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const lh_timeline_run *run = lhi_timeline_get_run(t, d, i);
        int64_t blocked = find_memory_block_start(f, d, next_f[i], memory);
        attribute_gap(f, run, at, blocked, idle);
        idle[LH_CAUSE_HEAD_OF_LINE] += run->issued_ns - run->end_ns;
        at = run->issued_ns;
        memory +=
            lhi_pass_memory_change(&f->p->chunks[run->pass.chunk], &run->pass);
    }
    attribute(idle, LH_CAUSE_DRAIN, &at, t->makespan_ns);
    lhi_arena_rewind(mem, mark);
    return LH_OK;
}

/* Stores each device's idle time by cause, plus the totals over all devices,
 * in a->idle. */
static lh_status attribute_idle(lh_analysis *a, const lhi_timeline_index *f,
                                lhi_arena *scratch, lh_error *err)
{
    a->n_devices = f->t->n_devices;
    a->idle =
        LHI_NEW(a->mem, int64_t, ((size_t)a->n_devices + 1) * LH_N_CAUSES);
    int64_t *held = LHI_NEW(scratch, int64_t, a->n_devices);
    if (!a->idle || !held)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < f->p->n_chunks; c++)
        held[f->p->chunks[c].device] += f->p->chunks[c].mem_static;
    int64_t *all = a->idle + (size_t)a->n_devices * LH_N_CAUSES;
    for (uint32_t d = 0; d < a->n_devices; d++) {
        int64_t *idle = a->idle + (size_t)d * LH_N_CAUSES;
        LHI_TRY(attribute_device(f, scratch, d, held[d], idle, err));
        for (int i = 0; i < LH_N_CAUSES; i++)
            all[i] += idle[i];
    }
    return LH_OK;
}

/* --- critical path ------------------------------------------------------ */

/* State for the backward walk: current time and the item reached. */
typedef struct path_walk {
    const lhi_timeline_index *f;
    lh_analysis *a;
    size_t room;
    int64_t at_ns;
    const lh_timeline_run *run; /* current position: before this run, or ... */
    const lh_message *message;  /* ... before this message departs, or ... */
    const lh_collective *collective; /* ... before this collective, or ... */
    const lhi_dp_piece *piece;       /* ... before this piece of one, or ... */
    const lh_offload_copy *copy;     /* ... before this copy */
    bool no_memory;
} path_walk;

/* Appends a segment (a pass, transfer, latency or copy) to the critical path;
 * skips empty ones except passes. */
static void add_segment(path_walk *w, lh_segment segment)
{
    if (segment.start_ns == segment.end_ns && segment.kind != LH_SEGMENT_PASS)
        return;
    if (w->a->n_segments == w->room) {
        size_t room = w->room ? 2 * w->room : 256;
        lh_segment *more = LHI_NEW(w->a->mem, lh_segment, room);
        if (!more) {
            w->no_memory = true;
            return;
        }
        if (w->room)
            memcpy(more, w->a->segments, w->room * sizeof *more);
        w->a->segments = more;
        w->room = room;
    }
    w->a->segments[w->a->n_segments++] = segment;
}

/* Adds the segments from pass `i` on device d to the critical path, which is
 * built backward in time, and continues at the pass's start. */
static void step_to_run(path_walk *w, uint32_t d, uint32_t i)
{
    const lh_timeline_run *run = lhi_timeline_get_run(w->f->t, d, i);
    if (run->issued_ns > run->end_ns && w->at_ns == run->issued_ns)
        add_segment(w, (lh_segment){.kind = LH_SEGMENT_HEAD_OF_LINE,
                                    .start_ns = run->end_ns,
                                    .end_ns = run->issued_ns,
                                    .pass = run->pass,
                                    .device = d,
                                    .run = i});
    add_segment(w, (lh_segment){.kind = LH_SEGMENT_PASS,
                                .start_ns = run->start_ns,
                                .end_ns = run->end_ns,
                                .pass = run->pass,
                                .device = d,
                                .run = i});
    *w = (path_walk){.f = w->f,
                     .a = w->a,
                     .room = w->room,
                     .at_ns = run->start_ns,
                     .run = run,
                     .no_memory = w->no_memory};
}

/* Adds a message's segments to the critical path and continues at its
 * departure; with_latency: the path uses its arrival. */
static void step_to_message(path_walk *w, const lh_message *m,
                            bool with_latency)
{
    uint32_t index = (uint32_t)(m - w->f->t->messages);
    lh_segment segment = {.kind = LH_SEGMENT_LATENCY,
                          .start_ns = m->sent_ns,
                          .end_ns = m->arrive_ns,
                          .pass = m->producer,
                          .device = m->from,
                          .message = index};
    if (with_latency)
        add_segment(w, segment);
    segment.kind = LH_SEGMENT_TRANSFER;
    segment.start_ns = m->depart_ns;
    segment.end_ns = m->sent_ns;
    add_segment(w, segment);
    *w = (path_walk){.f = w->f,
                     .a = w->a,
                     .room = w->room,
                     .at_ns = m->depart_ns,
                     .message = m,
                     .no_memory = w->no_memory};
}

/* Adds the segment of piece number i (slice of a collective on shared links),
 * merged with the collective's pieces directly before it, to the critical path.
 * Continues at their departure. */
static void step_to_piece(path_walk *w, uint32_t i)
{
    const lh_timeline *t = w->f->t;
    uint32_t before = w->f->piece_before[i];
    while (before != LH_NONE &&
           t->pieces[before].sent_ns == t->pieces[i].depart_ns) {
        i = before;
        before = w->f->piece_before[i];
    }
    const lhi_dp_piece *piece = &t->pieces[i];
    const lh_collective *c = &t->collectives[piece->collective];
    add_segment(w, (lh_segment){.kind = LH_SEGMENT_COLLECTIVE,
                                .start_ns = piece->depart_ns,
                                .end_ns = w->at_ns,
                                .pass = {.chunk = c->chunk, .n_parts = 1},
                                .device = c->device,
                                .collective = piece->collective});
    *w = (path_walk){.f = w->f,
                     .a = w->a,
                     .room = w->room,
                     .at_ns = piece->depart_ns,
                     .piece = piece,
                     .no_memory = w->no_memory};
}

/* Adds a collective's segment to the critical path and continues at its
 * departure. */
static void step_to_collective(path_walk *w, const lh_collective *c)
{
    uint32_t index = (uint32_t)(c - w->f->t->collectives);
    if (w->f->last_pieces && w->f->last_pieces[index] != LH_NONE) {
        step_to_piece(w, w->f->last_pieces[index]);
        return;
    }
    add_segment(w, (lh_segment){.kind = LH_SEGMENT_COLLECTIVE,
                                .start_ns = c->depart_ns,
                                .end_ns = w->at_ns,
                                .pass = {.chunk = c->chunk, .n_parts = 1},
                                .device = c->device,
                                .collective = index});
    *w = (path_walk){.f = w->f,
                     .a = w->a,
                     .room = w->room,
                     .at_ns = c->depart_ns,
                     .collective = c,
                     .no_memory = w->no_memory};
}

/* Adds an offload copy's segment to the critical path and continues at its
 * departure. */
static void step_to_copy(path_walk *w, const lh_offload_copy *c)
{
    add_segment(w, (lh_segment){.kind = LH_SEGMENT_COPY,
                                .start_ns = c->depart_ns,
                                .end_ns = w->at_ns,
                                .pass = {.chunk = c->chunk,
                                         .microbatch = c->microbatch,
                                         .n_parts = 1,
                                         .kind = c->is_reload ? LH_B : LH_F},
                                .device = c->device,
                                .copy = (uint32_t)(c - w->f->t->copies)});
    *w = (path_walk){.f = w->f,
                     .a = w->a,
                     .room = w->room,
                     .at_ns = c->depart_ns,
                     .copy = c,
                     .no_memory = w->no_memory};
}

/* Continues the critical path from a pass's start at its predecessor: the
 * previous pass, its message, an offload copy or its all-gather. Returns false
 * at the beginning. */
static bool step_from_run(path_walk *w)
{
    const lh_timeline *t = w->f->t;
    const lh_timeline_run *run = w->run;
    uint32_t i = (uint32_t)(run - lhi_timeline_get_run(t, run->device, 0));
    if (i > 0 && run[-1].issued_ns == w->at_ns) {
        step_to_run(w, run->device, i - 1);
        return true;
    }
    uint32_t message = find_awaited_message(w->f, run);
    if (message != LH_NONE && t->messages[message].arrive_ns == w->at_ns) {
        step_to_message(w, &t->messages[message], true);
        return true;
    }
    if (w->at_ns == 0)
        return false;
    const lh_offload_copy *copy = find_copy_before(w->f, run);
    if (copy && copy->end_ns == w->at_ns) {
        step_to_copy(w, copy);
        return true;
    }
    if (w->f->awaited && run->pass.kind != LH_W) {
        uint32_t op = w->f->awaited[lhi_pass_index(w->f->p, run->pass.chunk,
                                                   run->pass.microbatch,
                                                   run->pass.kind != LH_F)];
        if (op != LH_NONE && t->collectives[op].arrive_ns == w->at_ns) {
            step_to_collective(w, &t->collectives[op]);
            return true;
        }
    }
    uint32_t gather = w->f->gathers[run->pass.chunk];
    if (gather == LH_NONE || t->collectives[gather].arrive_ns != w->at_ns)
        return false;
    step_to_collective(w, &t->collectives[gather]);
    return true;
}

/* Continues the critical path at the link use whose transfer ends at the
 * current time. `index` numbers all messages, then all pieces (slices of
 * collectives). Returns false for LH_NONE, or if the transfer ends at another
 * time. */
static bool step_to_link_use(path_walk *w, uint32_t index)
{
    const lh_timeline *t = w->f->t;
    if (index == LH_NONE)
        return false;
    if (index < t->n_messages) {
        if (t->messages[index].sent_ns != w->at_ns)
            return false;
        step_to_message(w, &t->messages[index], false);
        return true;
    }
    if (t->pieces[index - t->n_messages].sent_ns != w->at_ns)
        return false;
    step_to_piece(w, index - t->n_messages);
    return true;
}

/* Continues the critical path from a message's departure at the previous
 * message on its link. Without a wait there, continues at the pass that made it
 * ready: its producer, or the pass that posts its receive. Returns false if it
 * finds none. */
static bool step_from_message(path_walk *w)
{
    const lh_timeline *t = w->f->t;
    const lh_message *m = w->message;
    if (m->depart_ns > m->ready_ns) {
        return step_to_link_use(w, w->f->before_on_link[m - t->messages]);
    }
    uint32_t maker = lhi_timeline_find_run(w->f, &m->producer);
    const lh_timeline_run *made = lhi_timeline_get_run(t, m->from, maker);
    if (made->pass.kind == LH_F && lhi_is_overlapped(w->f->p, &made->pass))
        maker++; /* sent at the pair's end, with its B's output */
    if (lhi_timeline_get_run(t, m->from, maker)->issued_ns == m->ready_ns ||
        m->produced_ns == m->ready_ns) {
        step_to_run(w, m->from, maker);
        return true;
    }
    uint32_t user = lhi_timeline_find_run(w->f, &m->consumer);
    while (user-- > 0)
        if (lhi_timeline_get_run(t, m->to, user)->issued_ns == m->ready_ns) {
            step_to_run(w, m->to, user);
            return true;
        }
    return false;
}

/* Continues the critical path at the start of the pass that launches collective
 * `c`'s operation. */
static void step_to_launch(path_walk *w, const lh_collective *c)
{
    const lh_dp_pass *at = &w->f->p->dp_ops[c->op].launch;
    size_t i = (size_t)at->chunk * w->f->p->n_microbatches + at->microbatch;
    uint32_t run = (at->backward ? w->f->backward_run : w->f->forward_run)[i];
    *w = (path_walk){.f = w->f,
                     .a = w->a,
                     .room = w->room,
                     .at_ns = c->ready_ns,
                     .run = lhi_timeline_get_run(w->f->t, c->device, run),
                     .no_memory = w->no_memory};
}

/* Continues the critical path from an all-gather at the first forward on
 * another chunk that issued it at its start. Returns false if there is none. */
static bool step_to_first_forward(path_walk *w, const lh_collective *c)
{
    if (c->ready_ns == 0)
        return false;
    for (uint32_t i = 0; i < lhi_timeline_count_runs(w->f->t, c->device); i++) {
        const lh_timeline_run *run =
            lhi_timeline_get_run(w->f->t, c->device, i);
        if (run->start_ns != c->ready_ns || run->pass.kind != LH_F)
            continue;
        *w = (path_walk){.f = w->f,
                         .a = w->a,
                         .room = w->room,
                         .at_ns = c->ready_ns,
                         .run = run,
                         .no_memory = w->no_memory};
        return true;
    }
    return false;
}

/* Continues the critical path at the chunk's last pass that ends at `end_ns`.
 * Returns false if there is none. */
static bool step_to_last_pass(path_walk *w, uint32_t chunk, int64_t end_ns)
{
    uint32_t device = w->f->p->chunks[chunk].device;
    for (uint32_t i = lhi_timeline_count_runs(w->f->t, device); i-- > 0;) {
        const lh_timeline_run *run = lhi_timeline_get_run(w->f->t, device, i);
        if (run->pass.chunk != chunk || run->end_ns != end_ns)
            continue;
        step_to_run(w, device, i);
        return true;
    }
    return false;
}

/* Continues the critical path from collective `c`'s launch at the pass
 * that launches it or made it ready. Returns false if it finds none. */
static bool step_from_launch(path_walk *w, const lh_collective *c)
{
    if (c->op != LH_NONE) {
        step_to_launch(w, c);
        return true;
    }
    if (!c->is_reduce_scatter)
        return step_to_first_forward(w, c);
    uint32_t copy = lhi_get_copy(w->f->p, c->chunk);
    return step_to_last_pass(w, c->chunk, c->ready_ns) ||
           (copy != LH_NONE && step_to_last_pass(w, copy, c->ready_ns));
}

/* Continues the critical path from time since_ns, when the device's
 * data-parallel link was ready for collective `c`. Its predecessor is the
 * previous collective on that link, or the launch of `c`. Returns false if it
 * finds none. */
static bool step_from_turn(path_walk *w, const lh_collective *c,
                           int64_t since_ns)
{
    const lh_timeline *t = w->f->t;
    if (since_ns == c->ready_ns)
        return step_from_launch(w, c);
    uint32_t before = w->f->before_on_dp[c - t->collectives];
    if (before == LH_NONE || t->collectives[before].sent_ns != since_ns)
        return false;
    step_to_collective(w, &t->collectives[before]);
    return true;
}

/* Continues the critical path from a collective's departure, at its predecessor
 * on the link or its launch. Returns false at the path's beginning. */
static bool step_from_collective(path_walk *w)
{
    return step_from_turn(w, w->collective, w->collective->depart_ns);
}

/* Continues the critical path from the departure of a piece (collective slice)
 * at the previous message or piece on its links, or where its collective could
 * start. Returns false at the path's beginning. */
static bool step_from_piece(path_walk *w)
{
    const lh_timeline *t = w->f->t;
    const lhi_dp_piece *piece = w->piece;
    if (piece->depart_ns > piece->ready_ns)
        return step_to_link_use(
            w, w->f->before_on_link[t->n_messages + (piece - t->pieces)]);
    return step_from_turn(w, &t->collectives[piece->collective],
                          piece->ready_ns);
}

/* Continues the critical path from an offload copy at the previous copy on its
 * stream, or at the pass that launches it; always returns true. */
static bool step_from_copy(path_walk *w)
{
    const lh_timeline *t = w->f->t;
    const lh_offload_copy *c = w->copy;
    if (c->depart_ns > c->ready_ns) {
        step_to_copy(w, &t->copies[w->f->before_on_copy[c - t->copies]]);
    } else if (!c->is_reload) {
        step_to_run(w, c->device, c->launching_run);
    } else {
        *w = (path_walk){
            .f = w->f,
            .a = w->a,
            .room = w->room,
            .at_ns = c->ready_ns,
            .run = lhi_timeline_get_run(t, c->device, c->launching_run),
            .no_memory = w->no_memory};
    }
    return true;
}

/* Starts the critical path at its end: the pass or collective that ends at the
 * makespan. */
static void start_walk(path_walk *w)
{
    const lh_timeline *t = w->f->t;
    w->at_ns = t->makespan_ns;
    for (uint32_t d = 0; d < t->n_devices; d++)
        if (lhi_timeline_count_runs(t, d) > 0 &&
            lhi_timeline_get_run(t, d, lhi_timeline_count_runs(t, d) - 1)
                    ->end_ns == t->makespan_ns) {
            step_to_run(w, d, lhi_timeline_count_runs(t, d) - 1);
            return;
        }
    for (uint32_t i = 0; i < t->n_collectives; i++)
        if (t->collectives[i].arrive_ns == t->makespan_ns) {
            step_to_collective(w, &t->collectives[i]);
            return;
        }
}

/* Builds the critical path, walking from the end to the beginning. */
static lh_status walk_critical_path(lh_analysis *a, const lhi_timeline_index *f,
                                    lh_error *err)
{
    path_walk w = {.f = f, .a = a};
    start_walk(&w);
    bool more = w.run || w.message || w.collective || w.piece;
    while (more && !w.no_memory)
        more = w.run          ? step_from_run(&w)
               : w.message    ? step_from_message(&w)
               : w.collective ? step_from_collective(&w)
               : w.piece      ? step_from_piece(&w)
                              : step_from_copy(&w);
    if (w.no_memory)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0, j = a->n_segments; i + 1 < j; i++) {
        lh_segment swap = a->segments[i];
        a->segments[i] = a->segments[--j];
        a->segments[j] = swap;
    }
    return LH_OK;
}

/* Computes the results of an analysis: idle time by cause, critical path, link
 * use and slackness, in this order. */
static lh_status analyse(lh_analysis *a, lhi_timeline_index *f,
                         const lh_schedule *s, lhi_arena *scratch,
                         lh_error *err)
{
    LHI_TRY(lhi_timeline_index_build(f, scratch, err));
    LHI_TRY(attribute_idle(a, f, scratch, err));
    LHI_TRY(walk_critical_path(a, f, err));
    a->n_links = f->t->n_resources;
    LHI_TRY(lhi_analysis_compute_link_use(f->p, f->t, a->mem, scratch,
                                          &a->links, err));
    return lhi_analysis_find_slack(f->p, f->t, s, a->mem, scratch, &a->slacks,
                                   &a->n_slacks, err);
}

lh_status lh_analysis_make(const lh_pipeline *pipeline,
                           const lh_schedule *schedule,
                           const lh_timeline *timeline, lh_analysis **out,
                           lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0), *scratch = lhi_arena_make(0);
    lh_analysis *a = mem ? LHI_NEW(mem, lh_analysis, 1) : NULL;
    lh_status status;
    if (!a || !scratch) {
        status = lhi_fail_nomem(err);
    } else {
        lhi_timeline_index f = {.p = pipeline, .t = timeline};
        a->mem = mem;
        status = analyse(a, &f, schedule, scratch, err);
    }
    lhi_arena_free(scratch);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = a;
    return LH_OK;
}

void lh_analysis_free(lh_analysis *analysis)
{
    if (analysis)
        lhi_arena_free(analysis->mem);
}

const int64_t *lh_analysis_idle(const lh_analysis *analysis, uint32_t device)
{
    size_t row = device == LH_NONE ? analysis->n_devices : device;
    return analysis->idle + row * LH_N_CAUSES;
}

const lh_segment *lh_analysis_critical_path(const lh_analysis *analysis,
                                            uint32_t *n_segments)
{
    *n_segments = analysis->n_segments;
    return analysis->segments;
}

const lh_link_use *lh_analysis_links(const lh_analysis *analysis,
                                     uint32_t *n_links)
{
    *n_links = analysis->n_links;
    return analysis->links;
}

const lh_slack *lh_analysis_slack(const lh_analysis *analysis,
                                  uint32_t *n_boundaries)
{
    *n_boundaries = analysis->n_slacks;
    return analysis->slacks;
}
