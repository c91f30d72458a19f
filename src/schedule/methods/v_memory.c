/* SPDX-License-Identifier: Apache-2.0 */
/* Methods "v-half" and "v-min" (Qi et al., "Pipeline Parallelism with
 * Controllable Memory", 2024): one half and one third of 1F1B's activations on
 * a V. Every microbatch repeats the passes of the previous one 6 slots later,
 * which is two chunks' work. The slots of one microbatch determine the
 * memory. The passes of warm-up and cool-down then move into free slots, as far
 * as the memory of the repeated pattern allows (the paper's squeezing). */
#include "schedule/methods/sched.h"

/* A device's passes in one microbatch's order. W: of the backward in the same
 * position; before the last step all W are FIRST_W. */
enum { F_DOWN, F_UP, D_DOWN, D_UP, FIRST_W, SECOND_W, N_STREAMS, N_F_D = 4 };
enum { PERIOD = 6, NO_SLOT = -1 };

/* A pass in a slot; zero: the slot is free. */
typedef struct slot_pass {
    uint32_t used : 1, stream : 3;
    uint32_t number; /* within the stream */
} slot_pass;

/* A device's slots. A slot's memory and pending W are those at its end. */
typedef struct slot_row {
    slot_pass *slots;
    int64_t *at[N_F_D]; /* slots of the streams' passes by microbatch */
    int32_t *memory;    /* chunks' activations */
    int32_t *pending;   /* D without their W */
    int64_t end;        /* after the last pass */
    uint32_t n_d;       /* squeeze(): D so far */
    int64_t last_w;     /* squeeze(): slot of the last W so far */
} slot_row;

/* State of one construction. */
typedef struct slot_plan {
    uint32_t n_devices, n; /* n: microbatches */
    int32_t limit;         /* largest memory of all devices */
    int64_t n_slots;
    slot_row *rows;
    lhi_orders orders;
} slot_plan;

/* Updates *memory (activations of chunks) and *pending (D without their W) by
 * the pass in one slot. Without has_w, slots have no W, and every free slot
 * runs a pending W. */
static void advance(const slot_pass *pass, bool has_w, int32_t *memory,
                    int32_t *pending)
{
    if (!pass->used) {
        if (!has_w && *pending > 0) {
            --*pending;
            --*memory;
        }
    } else if (pass->stream < D_DOWN) {
        ++*memory;
    } else if (pass->stream < FIRST_W) {
        ++*pending;
    } else {
        --*memory;
    }
}

/* Computes each device's activation memory and pending W at the end of every
 * slot (time interval), and in v->limit the largest memory. has_w: W have their
 * own slots. */
static void measure(slot_plan *v, bool has_w)
{
    v->limit = 0;
    for (uint32_t d = 0; d < v->n_devices; d++) {
        slot_row *row = &v->rows[d];
        int32_t memory = 0, pending = 0;
        for (int64_t t = 0; t < v->n_slots; t++) {
            advance(&row->slots[t], has_w, &memory, &pending);
            row->memory[t] = memory;
            row->pending[t] = pending;
            if (memory > v->limit)
                v->limit = memory;
        }
    }
}

/* Removes all W from the slots (time intervals) of all devices. */
static void remove_w(slot_plan *v)
{
    for (uint32_t d = 0; d < v->n_devices; d++)
        for (int64_t t = 0; t < v->n_slots; t++)
            if (v->rows[d].slots[t].stream >= FIRST_W)
                v->rows[d].slots[t] = (slot_pass){0};
}

/* Puts every W into a free slot (time interval) of its device after its D, as
 * early as possible. by_chunk: W of the chunk whose D comes first in a
 * microbatch take precedence; otherwise all W count as FIRST_W. */
static void put_w(slot_plan *v, bool by_chunk)
{
    for (uint32_t d = 0; d < v->n_devices; d++) {
        slot_row *row = &v->rows[d];
        uint32_t waiting[2] = {0}, next[2] = {0}, left = 2 * v->n;
        for (int64_t t = 0; left > 0; t++) {
            slot_pass *pass = &row->slots[t];
            uint32_t w = waiting[0] == 0;
            if (pass->used) {
                if (pass->stream == D_DOWN || pass->stream == D_UP)
                    waiting[by_chunk && pass->stream == D_UP]++;
            } else if (waiting[w] > 0) {
                *pass = (slot_pass){1, (FIRST_W + w) & 7U, next[w]++};
                waiting[w]--;
                left--;
                row->end = t + 1;
            }
        }
    }
}

/* Returns the slot (time interval) of D number `nth`, from 0, of a device in
 * time order; it is before slot `before`. */
static int64_t find_d(const slot_row *row, uint32_t nth, int64_t before)
{
    for (uint32_t n = row->n_d; n > nth;) {
        before--;
        n -= row->slots[before].stream == D_DOWN ||
             row->slots[before].stream == D_UP;
    }
    return before;
}

/* Returns the first slot (time interval) on device d in which the pass in slot
 * t could run, after the passes that produce its inputs. */
static int64_t find_earliest(const slot_plan *v, uint32_t d, int64_t t)
{
    const slot_row *row = &v->rows[d];
    const slot_pass pass = row->slots[t];
    int64_t after = NO_SLOT;
    if (pass.stream >= FIRST_W) {
        after = find_d(row, pass.number, t);
        return (after > row->last_w ? after : row->last_w) + 1;
    }
    bool down = pass.stream == F_DOWN || pass.stream == D_DOWN;
    if (down ? d > 0 : d + 1 < v->n_devices)
        after = v->rows[down ? d - 1 : d + 1].at[pass.stream][pass.number];
    if (pass.stream > F_DOWN && row->at[pass.stream - 1][pass.number] > after)
        after = row->at[pass.stream - 1][pass.number];
    if (pass.number > 0 && row->at[pass.stream][pass.number - 1] > after)
        after = row->at[pass.stream][pass.number - 1];
    return after + 1;
}

/* Checks whether a device stays within v->limit in every slot if a pass moves
 * from slot `from` to the earlier free slot `to`. If so, updates the memory and
 * pending W of all slots of `row` and returns true; otherwise changes nothing.
 * `has_w`: W passes have their own slots, as in advance(). */
static bool update_memory(const slot_plan *v, slot_row *row, bool has_w,
                          int64_t from, int64_t to)
{
    static const slot_pass free_slot;
    for (uint32_t write = 0; write < 2; write++) {
        int32_t memory = to > 0 ? row->memory[to - 1] : 0;
        int32_t pending = to > 0 ? row->pending[to - 1] : 0;
        for (int64_t t = to; t < v->n_slots; t++) {
            const slot_pass *pass = t == to     ? &row->slots[from]
                                    : t == from ? &free_slot
                                                : &row->slots[t];
            advance(pass, has_w, &memory, &pending);
            if (t >= from && memory == row->memory[t] &&
                pending == row->pending[t])
                break; /* unchanged from here on */
            if (memory > v->limit)
                return false;
            if (write) {
                row->memory[t] = memory;
                row->pending[t] = pending;
            }
        }
    }
    return true;
}

/* Moves the pass in slot t of device d into the first free slot (time interval)
 * after its inputs with which the device's memory stays within v->limit. has_w:
 * W have their own slots. Returns the new slot. */
static int64_t move_pass(slot_plan *v, uint32_t d, int64_t t, bool has_w)
{
    slot_row *row = &v->rows[d];
    for (int64_t to = find_earliest(v, d, t); to < t; to++) {
        if (row->slots[to].used || !update_memory(v, row, has_w, t, to))
            continue;
        slot_pass *pass = &row->slots[to];
        *pass = row->slots[t];
        row->slots[t] = (slot_pass){0};
        if (pass->stream < FIRST_W)
            row->at[pass->stream][pass->number] = to;
        return to;
    }
    return t;
}

/* Moves the passes of warm-up and cool-down into earlier free slots (the
 * paper's squeezing), in time order. The warm-up ends with the first
 * microbatch's last D; the cool-down begins after the first device's last F.
 * Warm-up passes move only with has_w: W have their own slots. */
static void squeeze(slot_plan *v, bool has_w)
{
    enum { WARM_UP, STEADY, COOL_DOWN } phase = WARM_UP;
    measure(v, has_w);
    for (uint32_t d = 0; d < v->n_devices; d++) {
        v->rows[d].n_d = 0;
        v->rows[d].last_w = NO_SLOT;
    }
    for (int64_t t = 0; t < v->n_slots; t++)
        for (uint32_t d = 0; d < v->n_devices; d++) {
            slot_row *row = &v->rows[d];
            const slot_pass pass = row->slots[t];
            if (!pass.used)
                continue;
            bool moves = phase == COOL_DOWN || (phase == WARM_UP && has_w);
            if (phase == WARM_UP && d == 0 && pass.stream == D_UP) {
                phase = STEADY;
                moves = false;
            }
            if (phase == STEADY && pass.stream == F_DOWN &&
                pass.number == v->n - 1) {
                phase = COOL_DOWN;
                moves = false;
            }
            int64_t at = moves ? move_pass(v, d, t, has_w) : t;
            row->n_d += pass.stream == D_DOWN || pass.stream == D_UP;
            if (pass.stream >= FIRST_W)
                row->last_w = at;
        }
}

/* Moves every pass to the first slot (time interval) in which all its inputs
 * are available and the device's previous pass has ended. */
static void compact(slot_plan *v)
{
    for (uint32_t d = 0; d < v->n_devices; d++)
        v->rows[d].end = 0;
    for (int64_t t = 0; t < v->n_slots; t++)
        for (uint32_t d = 0; d < v->n_devices; d++) {
            slot_row *row = &v->rows[d];
            const slot_pass pass = row->slots[t];
            if (!pass.used)
                continue;
            int64_t to = row->end;
            if (pass.stream < FIRST_W) {
                int64_t earliest = find_earliest(v, d, t);
                to = earliest > to ? earliest : to;
                row->at[pass.stream][pass.number] = to;
            }
            row->slots[t] = (slot_pass){0};
            row->slots[to] = pass;
            row->end = to + 1;
        }
}

/* Allocates the slots (time intervals) of all devices for a pattern in which a
 * microbatch's last pass has slot `last`. */
static lh_status allocate(slot_plan *v, int64_t last, lh_error *err)
{
    lhi_arena *mem = v->orders.mem;
    v->n_slots = last + (PERIOD + 2) * (int64_t)v->n;
    v->rows = LHI_NEW(mem, slot_row, v->n_devices);
    for (uint32_t d = 0; v->rows && d < v->n_devices; d++) {
        slot_row *row = &v->rows[d];
        int64_t *at = LHI_NEW(mem, int64_t, (size_t)N_F_D * v->n);
        row->slots = LHI_NEW(mem, slot_pass, (size_t)v->n_slots);
        row->memory = LHI_NEW(mem, int32_t, (size_t)v->n_slots);
        row->pending = LHI_NEW(mem, int32_t, (size_t)v->n_slots);
        if (!at || !row->slots || !row->memory || !row->pending)
            return lhi_fail_nomem(err);
        for (uint32_t s = 0; s < N_F_D; s++)
            row->at[s] = at + (size_t)s * v->n;
    }
    return v->rows ? LH_OK : lhi_fail_nomem(err);
}

/* Puts F and D of all microbatches into the slots (time intervals) of the
 * pattern. first(devices, d, slots) computes the first microbatch's slots on
 * device d; each later one is PERIOD slots behind. */
static void put_pattern(slot_plan *v, void (*first)(int64_t devices, int64_t d,
                                                    int64_t slots[N_F_D]))
{
    for (uint32_t d = 0; d < v->n_devices; d++) {
        int64_t slots[N_F_D];
        first(v->n_devices, d, slots);
        for (uint32_t s = 0; s < N_F_D; s++)
            for (uint32_t m = 0; m < v->n; m++) {
                int64_t t = slots[s] + PERIOD * (int64_t)m;
                v->rows[d].at[s][m] = t;
                v->rows[d].slots[t] = (slot_pass){1, s & 7U, m};
            }
    }
}

/* Appends the passes of all slots (time intervals), in time order, to the
 * devices' orders. */
static void write_orders(slot_plan *v)
{
    static const uint8_t kinds[N_STREAMS] = {LH_F, LH_F, LH_D,
                                             LH_D, LH_W, LH_W};
    for (uint32_t d = 0; d < v->n_devices; d++)
        for (int64_t t = 0; t < v->n_slots; t++) {
            const slot_pass pass = v->rows[d].slots[t];
            bool first = pass.stream == F_DOWN || pass.stream == D_UP ||
                         pass.stream == SECOND_W;
            if (pass.used)
                lhi_order_add_pass(
                    &v->orders.devices[d], (lh_pass_kind)kinds[pass.stream],
                    first ? d : 2 * v->n_devices - 1 - d, pass.number);
        }
}

/* Constructs the orders from a pattern in which the first microbatch's last
 * pass has slot `last`. first(devices, d, slots) computes the slots of its F
 * and D on device d. */
static lh_status construct(const lh_pipeline *pipeline, int64_t last,
                           void (*first)(int64_t devices, int64_t d,
                                         int64_t slots[N_F_D]),
                           lhi_orders *out, lh_error *err)
{
    slot_plan v = {.n_devices = pipeline->n_devices,
                   .n = pipeline->n_microbatches};
    LHI_TRY(lhi_orders_init(&v.orders, pipeline, 3, err));
    lh_status status = allocate(&v, last, err);
    if (status != LH_OK) {
        lhi_orders_fini(&v.orders);
        return status;
    }
    put_pattern(&v, first);
    put_w(&v, false);
    squeeze(&v, true);
    compact(&v);
    remove_w(&v);
    squeeze(&v, false);
    put_w(&v, false);
    compact(&v);
    remove_w(&v);
    put_w(&v, true);
    write_orders(&v);
    *out = v.orders;
    return LH_OK;
}

/* Computes the slots (time intervals) of the first microbatch's F and D on
 * device d of `devices`, for V-Half. With an even number of devices the
 * backward starts 3 slots later, so that no two passes share a slot. */
static void compute_half_slots(int64_t devices, int64_t d, int64_t slots[N_F_D])
{
    int64_t wait = devices % 2 == 0 ? 3 : 0;
    slots[F_DOWN] = 2 * d;
    slots[F_UP] = 3 * devices - 2 - d;
    slots[D_DOWN] = 3 * devices - 1 + wait + 2 * d;
    slots[D_UP] = 6 * devices - 2 + wait - d;
}

/* Computes the slots (time intervals) of the first microbatch's F and D on
 * device d of `devices`, for V-Min, as compute_half_slots() does for V-Half. */
static void compute_min_slots(int64_t devices, int64_t d, int64_t slots[N_F_D])
{
    int64_t wait = devices % 3 == 0 ? 2 : 0;
    slots[F_DOWN] = d;
    slots[F_UP] = 2 * devices - 1 - d;
    slots[D_DOWN] = 2 * devices + wait + d;
    slots[D_UP] = 4 * devices - 1 + wait - d;
}

/* Method "v-half": a V of two chunks per device, with half the activation
 * memory of 1f1b (Qi et al., 2024). */
lh_status lhi_v_half(const lh_pipeline *pipeline,
                     const lh_method_options *options, lhi_orders *out,
                     lh_error *err)
{
    (void)options;
    return construct(pipeline, 6 * (int64_t)pipeline->n_devices + 2,
                     compute_half_slots, out, err);
}

/* Method "v-min": a V of two chunks per device, with a third of the activation
 * memory of 1f1b (Qi et al., 2024). */
lh_status lhi_v_min(const lh_pipeline *pipeline,
                    const lh_method_options *options, lhi_orders *out,
                    lh_error *err)
{
    (void)options;
    return construct(pipeline, 4 * (int64_t)pipeline->n_devices + 2,
                     compute_min_slots, out, err);
}
