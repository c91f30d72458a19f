/* SPDX-License-Identifier: Apache-2.0 */
/* Insertion heuristic, analogous to trains on a single track: microbatches
 * travel up the pipeline and return, and on every device the two directions
 * meet. Dispatching by time detects a meeting too late to avoid it.
 *
 * Here each microbatch receives its complete path at once, in gaps between
 * existing operations: each pass as early as possible, plus W where a forward
 * needs its memory. The spacing between microbatches determines the cost of
 * meetings. A few parameters control it, and they are annealed. */
#include "schedule/solver/improve/insertion.h"

#include "base/random.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/model/mirror.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CYCLE = 200 }; /* max. schedules per annealing cycle */

/* An occupied interval on a machine. */
typedef struct slot {
    int64_t start, end;
    uint32_t op;
} slot;

/* The heuristic's parameters. */
typedef struct parameters {
    int64_t *space; /* per stream: min. distance between starts */
    int64_t *dwell; /* per stream: delay before an operation */
    int64_t *enter; /* per microbatch: added to its first space */
    bool shift;     /* going up: wait before a pass, not after it */
} parameters;

/* An operation in a known schedule: the next one in its stream. */
typedef struct ordered_operation {
    int64_t at;
    uint32_t stream;
} ordered_operation;

/* The common prefix of all schedules in an annealing cycle. */
typedef struct prefix {
    uint32_t n_microbatches;
    slot *slots;    /* as in `line`, machine by machine */
    uint32_t *n;    /* per machine */
    uint32_t *next; /* per stream */
    int64_t *end;   /* per operation */
} prefix;

/* State of the insertion heuristic. */
struct lhi_inserter {
    const lhi_shop *s;           /* the job shop or its mirror */
    lhi_machine_orders *orders;  /* its orders */
    lhi_machine_orders *forward; /* the original's orders, if s is the mirror */
    uint32_t *path;              /* streams on a microbatch's path */
    uint32_t n_path, turn;
    const uint32_t *up, *down; /* streams per chunk before and after the turn */
    slot **line;               /* per machine, by time */
    uint32_t *n;
    uint32_t *next;           /* per stream: operations with a slot */
    int64_t *end;             /* per operation; -1: no slot yet */
    int64_t *trip;            /* per chunk: round trip to the next one */
    uint32_t *distant_chunks; /* chunks with a message over a long link */
    uint32_t n_distant;
    parameters now, old;
    lhi_random random;
    prefix kept;
    ordered_operation *visits;
    uint32_t *needed; /* per stream: operations that the prefix requires */
    int64_t time;     /* objective for the current parameters */
    int64_t heat;     /* initial temperature */
    uint32_t n_cycles;
};

/* --- slots ---------------------------------------------------------------- */

/* Returns the position, in machine m's order, of the first placed operation
 * that ends after `ready`. Searches from the end, since it is often one of the
 * last. */
static uint32_t find_first_after(const lhi_inserter *a, uint32_t m,
                                 int64_t ready)
{
    const slot *line = a->line[m];
    uint32_t high = a->n[m], step = 1;
    while (step <= high && line[high - step].end > ready) {
        high -= step;
        step *= 2;
    }
    uint32_t low = step <= high ? high - step + 1 : 0;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (line[middle].end > ready)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Finds the first gap on machine m that ends after *start and leaves room for
 * an operation of duration `time`; sets *start to the operation's start and
 * returns the gap's position. */
static uint32_t find_gap(const lhi_inserter *a, uint32_t m, int64_t time,
                         int64_t *start)
{
    const slot *line = a->line[m];
    uint32_t i = find_first_after(a, m, *start);
    for (; i < a->n[m] && *start + time > line[i].start; i++)
        *start = line[i].end > *start ? line[i].end : *start;
    return i;
}

/* Places operation o in machine m's first gap from `ready` on that is long
 * enough. */
static void put_in_gap(lhi_inserter *a, uint32_t m, uint32_t o, int64_t ready)
{
    slot *line = a->line[m];
    const int64_t time = a->s->time[o];
    uint32_t at = find_gap(a, m, time, &ready);
    memmove(line + at + 1, line + at, (a->n[m] - at) * sizeof *line);
    line[at] = (slot){ready, ready + time, o};
    a->n[m]++;
    a->end[o] = ready + time;
}

/* --- one microbatch ------------------------------------------------------- */

static void place_through(lhi_inserter *a, uint32_t o);

/* Places the next operation of a stream (operations in fixed order) at `ready`
 * or later, after placing all its predecessors. A forward that waits for memory
 * first places the W that releases that memory. */
static void place_next(lhi_inserter *a, uint32_t stream, int64_t ready)
{
    const lhi_shop *s = a->s;
    const lhi_stream *t = &s->streams[stream];
    const uint32_t o = t->first + a->next[stream];
    ready = s->head[o] > ready ? s->head[o] : ready;
    for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
        uint32_t q = s->pred[i];
        if (a->end[q] < 0)
            place_through(a, q);
        int64_t came = a->end[q] + s->pred_lag[i];
        ready = came > ready ? came : ready;
    }
    ready += a->now.dwell[stream];
    if (a->next[stream] > 0) {
        int64_t apart = a->now.space[stream] - s->time[o - 1];
        int64_t free_at = a->end[o - 1] + (apart > 0 ? apart : 0);
        ready = free_at > ready ? free_at : ready;
    }
    put_in_gap(a, t->machine, o, ready);
    a->next[stream]++;
}

/* Places the operations of o's stream up to and including o in the schedule
 * under construction. */
static void place_through(lhi_inserter *a, uint32_t o)
{
    while (a->end[o] < 0)
        place_next(a, a->s->stream_of[o], 0);
}

/* Moves the placed operation o later within its gap, as long as no successor is
 * delayed. */
static void shift_later(lhi_inserter *a, uint32_t o)
{
    const lhi_shop *s = a->s;
    const uint32_t m = s->streams[s->stream_of[o]].machine;
    slot *line = a->line[m];
    int64_t until = FAR;
    for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++) {
        uint32_t q = s->succ[i];
        int64_t begin = a->end[q] - s->time[q] - s->succ_lag[i];
        if (a->end[q] >= 0 && begin < until)
            until = begin;
    }
    if (until == FAR || until <= a->end[o])
        return;
    uint32_t x = find_first_after(a, m, a->end[o] - s->time[o]);
    if (x + 1 < a->n[m] && line[x + 1].start < until)
        until = line[x + 1].start;
    a->end[o] = line[x].end = until;
    line[x].start = until - s->time[o];
}

/* Places all operations of microbatch j, along its path through the pipeline,
 * in the schedule under construction. */
static void insert_microbatch(lhi_inserter *a, uint32_t j)
{
    const lhi_shop *s = a->s;
    for (uint32_t i = 0; i < a->n_path; i++) {
        int64_t ready = 0;
        if (i == 0 && j > 0) {
            uint32_t last = s->streams[a->path[0]].first + j - 1;
            ready = a->end[last] - s->time[last] + a->now.space[a->path[0]] +
                    a->now.enter[j];
        }
        place_next(a, a->path[i], ready);
    }
    for (uint32_t i = a->turn; a->now.shift && i-- > 0;)
        shift_later(a, s->streams[a->path[i]].first + j);
}

/* Builds a schedule by insertion with the current parameters: spacings of
 * microbatches, their delays on entry, and delays before operations. Returns
 * the schedule's objective in the job shop's time unit; FAR: it failed. */
static int64_t evaluate(lhi_inserter *a)
{
    const lhi_shop *s = a->s;
    const prefix *k = &a->kept;
    memcpy(a->n, k->n, s->n_machines * sizeof *a->n);
    memcpy(a->next, k->next, s->n_streams * sizeof *a->next);
    memcpy(a->end, k->end, s->n_ops * sizeof *a->end);
    for (uint32_t m = 0; m < s->n_machines; m++)
        memcpy(a->line[m], k->slots + (a->line[m] - a->line[0]),
               a->n[m] * sizeof *a->line[m]);
    for (uint32_t j = k->n_microbatches; j < s->n_microbatches; j++)
        insert_microbatch(a, j);
    for (uint32_t i = 0; i < s->n_streams; i++)
        place_through(a, s->streams[i].first + s->streams[i].count - 1);
    for (uint32_t m = 0; m < s->n_machines; m++)
        for (uint32_t i = 0; i < a->n[m]; i++)
            a->orders->order[m][i] = a->line[m][i].op;
    int64_t time = lhi_machine_orders_evaluate(a->orders);
    return time < 0 ? FAR : time;
}

/* --- prefix --------------------------------------------------------------- */

/* Compares operations by time, then by stream (operations in fixed order), for
 * qsort(). */
static int compare_times(const void *x, const void *y)
{
    const ordered_operation *a = x, *b = y;
    return a->at != b->at           ? (a->at > b->at) - (a->at < b->at)
           : a->stream != b->stream ? (a->stream > b->stream) * 2 - 1
                                    : 0;
}

/* Lists in a->visits all operations of a schedule with m microbatches whose
 * start times are start[], sorted by start (mirrored: descending). Returns
 * their number. Starts are used because a job shop of another size may have
 * another time scale, and so different ends. */
static uint32_t list_operations(lhi_inserter *a, const int64_t *start,
                                uint32_t m)
{
    const lhi_shop *s = a->s;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        const bool all = m == s->n_microbatches;
        const uint32_t first =
            all ? t->first : t->first / s->n_microbatches * m;
        const uint32_t count =
            all ? t->count : t->count / s->n_microbatches * m;
        for (uint32_t x = 0; x < count; x++) {
            const int64_t at = start[first + x];
            a->visits[n++] = (ordered_operation){a->forward ? -at : at, i};
        }
    }
    qsort(a->visits, n, sizeof *a->visits, compare_times);
    return n;
}

/* Checks whether operation o is kept from the known schedule: it belongs to the
 * first n_microbatches or, if a W, is needed by kept operations. */
static bool is_in_prefix(const lhi_inserter *a, uint32_t o,
                         uint32_t n_microbatches)
{
    const uint32_t stream = a->s->stream_of[o];
    const lhi_stream *t = &a->s->streams[stream];
    return t->kind == LHI_W ? o < t->first + a->needed[stream]
                            : (o - t->first) / t->per < n_microbatches;
}

/* Counts per stream the Ws that must be kept because other operations of the
 * first n_microbatches require them. */
static void count_required(lhi_inserter *a, uint32_t n_microbatches)
{
    const lhi_shop *s = a->s;
    memset(a->needed, 0, s->n_streams * sizeof *a->needed);
    for (uint32_t o = 0; o < s->n_ops; o++) {
        if (s->streams[s->stream_of[o]].kind == LHI_W ||
            !is_in_prefix(a, o, n_microbatches))
            continue;
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
            uint32_t q = s->pred[i], stream = s->stream_of[q];
            uint32_t x = q - s->streams[stream].first;
            if (a->needed[stream] <= x)
                a->needed[stream] = x + 1;
        }
    }
}

/* Appends the next operation of a stream (operations in fixed order) to its
 * machine's order, as early as possible; false: a predecessor is not placed
 * yet. */
static bool append(lhi_inserter *a, uint32_t stream)
{
    const lhi_shop *s = a->s;
    const uint32_t m = s->streams[stream].machine;
    const uint32_t o = s->streams[stream].first + a->next[stream];
    int64_t ready = s->head[o];
    for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
        int64_t came = a->end[s->pred[i]] + s->pred_lag[i];
        if (a->end[s->pred[i]] < 0)
            return false;
        ready = came > ready ? came : ready;
    }
    if (a->n[m] > 0 && a->line[m][a->n[m] - 1].end > ready)
        ready = a->line[m][a->n[m] - 1].end;
    a->end[o] = ready + s->time[o];
    a->line[m][a->n[m]++] = (slot){ready, a->end[o], o};
    a->next[stream]++;
    return true;
}

/* Removes all placed operations from the schedule under construction. */
static void remove_all_ops(lhi_inserter *a)
{
    const lhi_shop *s = a->s;
    memset(a->n, 0, s->n_machines * sizeof *a->n);
    memset(a->next, 0, s->n_streams * sizeof *a->next);
    memset(a->end, 0xff, s->n_ops * sizeof *a->end);
}

/* Rebuilds a schedule for m microbatches in the order of the start times
 * start[], each operation as early as possible; false: a predecessor would be
 * missing. */
static bool rebuild_schedule(lhi_inserter *a, const int64_t *start, uint32_t m)
{
    const uint32_t n = list_operations(a, start, m);
    remove_all_ops(a);
    for (uint32_t i = 0; i < n; i++)
        if (!append(a, a->visits[i].stream))
            return false;
    return true;
}

/* Builds the part of a known schedule that insertion keeps. Its operations
 * retain their times, so later microbatches find the gaps that were left for
 * them. */
static void build_prefix(lhi_inserter *a, const lhi_insertion_options *how)
{
    const lhi_shop *s = a->s;
    prefix *k = &a->kept;
    k->n_microbatches = how->start ? how->n_kept : 0;
    if (k->n_microbatches > 0 &&
        !rebuild_schedule(a, how->start, how->n_microbatches))
        k->n_microbatches = 0;
    memset(k->n, 0, s->n_machines * sizeof *k->n);
    memset(k->next, 0, s->n_streams * sizeof *k->next);
    memset(k->end, 0xff, s->n_ops * sizeof *k->end);
    if (k->n_microbatches == 0)
        return;
    count_required(a, k->n_microbatches);
    for (uint32_t m = 0; m < s->n_machines; m++) {
        const slot *line = a->line[m];
        slot *out = k->slots + (line - a->line[0]);
        for (uint32_t i = 0; i < a->n[m]; i++) {
            uint32_t o = line[i].op, stream = s->stream_of[o];
            if (!is_in_prefix(a, o, k->n_microbatches))
                continue;
            out[k->n[m]++] = line[i];
            k->end[o] = line[i].end;
            k->next[stream]++;
        }
    }
}

/* --- parameters ----------------------------------------------------------- */

/* Returns a random number from 0 to n - 1. */
static uint32_t draw_below(lhi_inserter *a, uint32_t n)
{
    return lhi_random_below(&a->random, n);
}

/* Returns a random bit. */
static bool draw_bit(lhi_inserter *a)
{
    return lhi_random_next(&a->random) & 1;
}

/* Returns a random number in 0..most. */
static int64_t draw_up_to(lhi_inserter *a, int64_t most)
{
    return (int64_t)(lhi_random_next(&a->random) % ((uint64_t)most + 1));
}

/* Returns the duration of one operation of chunk c; `streams`: the stream per
 * chunk (s->f, s->d or s->w). 0: there is none. */
static int64_t get_duration(const lhi_inserter *a, const uint32_t *streams,
                            uint32_t c)
{
    uint32_t stream = streams[c];
    return stream == NONE ? 0 : a->s->time[a->s->streams[stream].first];
}

/* Draws a random value for `space`, the minimum distance between the starts of
 * two consecutive microbatches, from the pass times F, D, W of a random chunk:
 * 0, F + D, 2 (F + D), a number up to 2 (F + D), or, with time for W passes,
 * F + D + W or F + D plus up to 3 W. Microbatches at multiples of F + D meet
 * microbatches in the opposite direction without waiting. */
static int64_t draw_space(lhi_inserter *a)
{
    const lhi_shop *s = a->s;
    uint32_t c = draw_below(a, s->p->n_chunks);
    int64_t both = get_duration(a, s->f, c) + get_duration(a, s->d, c);
    int64_t w = get_duration(a, s->w, c) * s->parts;
    switch (draw_below(a, 6)) {
    case 0:
        return 0;
    case 1:
        return both;
    case 2:
        return both + w;
    case 3:
        return both + draw_up_to(a, 3 * w);
    case 4:
        return draw_up_to(a, 2 * both);
    default:
        return 2 * both;
    }
}

/* Draws a random range of chunks, *from to *to, every second time from chunk
 * 0. */
static void draw_range(lhi_inserter *a, uint32_t *from, uint32_t *to)
{
    uint32_t n = a->s->p->n_chunks, x = draw_bit(a) ? 0 : draw_below(a, n),
             y = draw_below(a, n);
    *from = x < y ? x : y;
    *to = x < y ? y : x;
}

/* Sets the minimum distance between consecutive microbatches to a random value,
 * on a random range of chunks, for their F or D. */
static void perturb_spacing(lhi_inserter *a)
{
    const uint32_t *streams = draw_below(a, 5) < 2 ? a->s->f : a->s->d;
    int64_t space = draw_space(a);
    uint32_t from, to;
    draw_range(a, &from, &to);
    for (uint32_t c = from; c <= to; c++)
        a->now.space[streams[c]] = space;
}

/* Changes at random the delay that insertion adds before operations next to one
 * link. If a round trip takes a multiple of F + D, microbatches that met
 * without waiting before the link also do so behind it. */
static void perturb_dwell(lhi_inserter *a)
{
    const lhi_shop *s = a->s;
    uint32_t last = s->p->n_chunks - 1;
    if (last == 0)
        return;
    uint32_t c = a->n_distant > 0 && draw_bit(a)
                     ? a->distant_chunks[draw_below(a, a->n_distant)]
                     : draw_below(a, last);
    int64_t both = get_duration(a, s->f, c) + get_duration(a, s->d, c);
    int64_t need = (both - a->trip[c] % both) % both, up = 0;
    switch (draw_below(a, 5)) {
    case 0:
        break;
    case 1:
        up = need;
        break;
    case 2:
        up = need / 2;
        break;
    case 3:
        up = draw_up_to(a, need);
        break;
    default:
        up = draw_up_to(a, both - 1);
    }
    bool rest = draw_bit(a);
    bool all = a->n_distant > 0 && draw_bit(a);
    for (uint32_t i = 0; i < (all ? a->n_distant : 1); i++) {
        uint32_t at = all ? a->distant_chunks[i] : c;
        a->now.dwell[a->up[at + 1]] = up;
        if (rest)
            a->now.dwell[a->down[at]] = need > up ? need - up : 0;
    }
}

/* Changes at random the time by which insertion delays one microbatch's entry
 * into the pipeline, or that of every k-th microbatch. */
static void perturb_entry(lhi_inserter *a)
{
    const lhi_shop *s = a->s;
    uint32_t n = s->n_microbatches, c = draw_below(a, s->p->n_chunks);
    uint32_t j = draw_below(a, n), by = n;
    int64_t both = get_duration(a, s->f, c) + get_duration(a, s->d, c);
    int64_t value = draw_bit(a) ? 0 : draw_up_to(a, 2 * both);
    if (draw_bit(a)) {
        by = 1 + draw_below(a, 1u << draw_below(a, 7));
        value = draw_bit(a) ? value : both;
        j = draw_bit(a) ? j : draw_below(a, by);
    }
    for (; j < n; j += by)
        a->now.enter[j] = value;
}

/* Perturbs one random insertion parameter: spacing, entry times, delays at
 * links, or the direction of shifts. */
static void perturb_parameter(lhi_inserter *a)
{
    uint32_t what = draw_below(a, 12);
    if (what < 5)
        perturb_spacing(a);
    else if (what < 9)
        perturb_entry(a);
    else if (what < 11)
        perturb_dwell(a);
    else
        a->now.shift = !a->now.shift;
}

/* Copies an insertion run's parameters from `from` to `to`, whose arrays have
 * the same size. */
static void copy_parameters(const lhi_shop *s, parameters *to,
                            const parameters *from)
{
    memcpy(to->space, from->space, s->n_streams * sizeof *to->space);
    memcpy(to->dwell, from->dwell, s->n_streams * sizeof *to->dwell);
    memcpy(to->enter, from->enter, s->n_microbatches * sizeof *to->enter);
    to->shift = from->shift;
}

/* --- annealing ------------------------------------------------------------ */

/* Stores the last schedule's orders, whose objective is `time`, in `best` if
 * that is less than *best_time (< 0: none), and updates *best_time. */
static void keep_better(lhi_inserter *a, int64_t time, lhi_machine_orders *best,
                        int64_t *best_time)
{
    const lhi_machine_orders *orders = a->orders;
    if (time == FAR || (*best_time >= 0 && time >= *best_time))
        return;
    if (a->forward) {
        lhi_mirror_convert_orders(a->forward, orders);
        orders = a->forward;
        time = lhi_machine_orders_evaluate(a->forward);
    }
    if (time < 0 || (*best_time >= 0 && time >= *best_time))
        return;
    *best_time = time;
    lhi_machine_orders_copy(best, orders);
}

/* Resets all insertion parameters to 0, as an annealing cycle's start, and
 * evaluates them; returns the objective in job-shop time. */
static int64_t begin_cycle(lhi_inserter *a)
{
    const lhi_shop *s = a->s;
    memset(a->now.space, 0, s->n_streams * sizeof *a->now.space);
    memset(a->now.dwell, 0, s->n_streams * sizeof *a->now.dwell);
    memset(a->now.enter, 0, s->n_microbatches * sizeof *a->now.enter);
    a->now.shift = a->n_cycles++ % 2;
    a->time = evaluate(a);
    return a->time;
}

/* Performs one annealing step: perturbs the insertion parameters and keeps the
 * change if the schedule is good enough for the temperature. `left` of `cycle`
 * steps remain, which sets the temperature. Returns the new schedule's
 * objective. */
static int64_t anneal(lhi_inserter *a, uint32_t left, uint32_t cycle)
{
    copy_parameters(a->s, &a->old, &a->now);
    do
        perturb_parameter(a);
    while (draw_bit(a));
    int64_t time = evaluate(a);
    const int64_t heat =
        a->heat / cycle * left + a->heat % cycle * left / cycle;
    if (time <=
        a->time + (a->time < FAR ? draw_up_to(a, draw_up_to(a, heat)) : 0))
        a->time = time;
    else
        copy_parameters(a->s, &a->now, &a->old);
    return time;
}

void lhi_inserter_run(lhi_inserter *a, const lhi_insertion_options *how,
                      lhi_machine_orders *best, int64_t *best_time,
                      lhi_budget *budget)
{
    const lhi_shop *s = a->s;
    const uint32_t n = s->n_microbatches;
    if (how->start && lhi_budget_spend(budget, s->n_ops / 8 + 1))
        return;
    build_prefix(a, how);
    /* All operations are copied and timed; those outside the prefix are
     * inserted. */
    const uint64_t left = s->n_ops * (uint64_t)(n - a->kept.n_microbatches) / n;
    const uint64_t each = (s->n_ops + 3 * left) / 48 + 1;
    const uint64_t fit = (how->ticks + each - 1) / each;
    const uint32_t cycle = fit < 1           ? 1
                           : fit < MAX_CYCLE ? (uint32_t)fit
                                             : MAX_CYCLE;
    for (uint32_t i = 0; i < cycle; i++) {
        int64_t time = i == 0 ? begin_cycle(a) : anneal(a, cycle - i, cycle);
        keep_better(a, time, best, best_time);
        if (lhi_budget_spend(budget, each) ||
            (*best_time >= 0 && *best_time <= how->target))
            return;
    }
}

const int64_t *lhi_inserter_get_ends(const lhi_inserter *a)
{
    return a->end;
}

/* --- construction --------------------------------------------------------- */

/* Lists the streams (same-kind passes on one chunk, messages on one route) that
 * a microbatch passes, in order. */
static void find_path(lhi_inserter *a)
{
    const lhi_shop *s = a->s;
    const uint32_t n = s->p->n_chunks;
    const bool mirrored = a->forward;
    const uint32_t *over = mirrored ? s->message_d : s->message_f;
    const uint32_t *back = mirrored ? s->message_f : s->message_d;
    a->up = mirrored ? s->d : s->f;
    a->down = mirrored ? s->f : s->d;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t message = c + 1 == n ? NONE : over[mirrored ? c + 1 : c];
        a->path[a->n_path++] = a->up[c];
        if (message != NONE)
            a->path[a->n_path++] = message;
    }
    a->turn = a->n_path;
    for (uint32_t c = n; c-- > 0;) {
        uint32_t message = c == 0 ? NONE : back[mirrored ? c - 1 : c];
        a->path[a->n_path++] = a->down[c];
        if (message != NONE)
            a->path[a->n_path++] = message;
    }
}

/* Computes the round-trip time over the link behind each chunk, in job-shop
 * time, and the initial temperature of annealing. */
static void compute_round_trips(lhi_inserter *a)
{
    const lhi_shop *s = a->s;
    int64_t mean = 0;
    for (uint32_t o = 0; o < s->n_ops; o++)
        mean += s->time[o];
    a->heat = mean / s->n_ops + 1;
    for (uint32_t c = 0; c + 1 < s->p->n_chunks; c++) {
        const lhi_route *to = &s->p->forward[c], *from = &s->p->backward[c + 1];
        int64_t ns = to->transfer_ns + to->latency_ns + from->transfer_ns +
                     from->latency_ns;
        a->trip[c] = ns / s->unit_ns * s->scale;
        if (ns > 0)
            a->distant_chunks[a->n_distant++] = c;
    }
}

/* Allocates the insertion engine's arrays in `mem`; false: out of memory. */
static bool allocate(lhi_inserter *a, lhi_arena *mem)
{
    const lhi_shop *s = a->s;
    const size_t m = s->n_machines, n = s->n_streams, c = s->p->n_chunks;
    parameters *both[2] = {&a->now, &a->old};
    slot *slots = LHI_NEW(mem, slot, s->n_ops);
    a->line = LHI_NEW(mem, slot *, m);
    a->kept.slots = LHI_NEW(mem, slot, s->n_ops);
    a->kept.n = LHI_NEW(mem, uint32_t, m);
    a->kept.next = LHI_NEW(mem, uint32_t, n);
    a->kept.end = LHI_NEW(mem, int64_t, s->n_ops);
    a->visits = LHI_NEW(mem, ordered_operation, s->n_ops);
    a->needed = LHI_NEW(mem, uint32_t, n);
    if (!slots || !a->line || !a->kept.slots || !a->kept.n || !a->kept.next ||
        !a->kept.end || !a->visits || !a->needed)
        return false;
    for (uint32_t i = 0; i < m; i++) {
        a->line[i] = slots;
        slots += lhi_machine_count_operations(s, i);
    }
    for (int i = 0; i < 2; i++) {
        both[i]->space = LHI_NEW(mem, int64_t, n);
        both[i]->dwell = LHI_NEW(mem, int64_t, n);
        both[i]->enter = LHI_NEW(mem, int64_t, s->n_microbatches);
        if (!both[i]->space || !both[i]->dwell || !both[i]->enter)
            return false;
    }
    a->path = LHI_NEW(mem, uint32_t, n);
    a->n = LHI_NEW(mem, uint32_t, m);
    a->next = LHI_NEW(mem, uint32_t, n);
    a->end = LHI_NEW(mem, int64_t, s->n_ops);
    a->trip = LHI_NEW(mem, int64_t, c);
    a->distant_chunks = LHI_NEW(mem, uint32_t, c);
    return a->path && a->n && a->next && a->end && a->trip && a->distant_chunks;
}

/* Checks the requirements of insertion: one chunk per device, no collectives on
 * links with messages, memory expressed by precedence arcs, and times far from
 * overflow with any parameters. */
static bool is_applicable(const lhi_shop *s)
{
    const int64_t waits = (int64_t)s->n_streams + s->n_microbatches;
    if (s->horizon > FAR / 16 / waits || !lhi_shop_has_single_chunks(s) ||
        s->shares_links)
        return false;
    for (uint32_t m = 0; m < s->n_machines; m++) {
        const lhi_machine *k = &s->machines[m];
        if (k->leader != NONE ||
            (k->memory_limit != LH_NO_LIMIT && !k->arcs_enforce_memory))
            return false;
    }
    return true;
}

lh_status lhi_inserter_make(const lhi_shop *shop, bool mirrored, uint64_t seed,
                            lhi_arena *mem, lhi_inserter **out, lh_error *err)
{
    *out = NULL;
    if (!is_applicable(shop))
        return LH_OK;
    lhi_inserter *a = LHI_NEW(mem, lhi_inserter, 1);
    if (!a)
        return lhi_fail_nomem(err);
    *a = (lhi_inserter){.s = shop, .random = {seed}};
    if (mirrored) {
        lhi_shop *mirror;
        LHI_TRY(lhi_mirror_make(shop, mem, &mirror, err));
        LHI_TRY(lhi_machine_orders_make(shop, mem, &a->forward, err));
        a->s = mirror;
    }
    LHI_TRY(lhi_machine_orders_make(a->s, mem, &a->orders, err));
    if (!allocate(a, mem))
        return lhi_fail_nomem(err);
    find_path(a);
    compute_round_trips(a);
    *out = a;
    return LH_OK;
}
