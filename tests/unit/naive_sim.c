/* SPDX-License-Identifier: Apache-2.0 */
#include "naive_sim_internal.h"
#include "schedule/pipeline/accessors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *naive_grab(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

int64_t naive_part_of(int64_t total, const lh_pass *pass)
{
    __extension__ typedef __int128 wide;
    wide upto = (wide)total * (pass->part + 1) / pass->n_parts;
    wide before = (wide)total * pass->part / pass->n_parts;
    return (int64_t)(upto - before);
}

/* Returns the factor of the passes in an overlapped pair; 0: no such pass. */
static double overlap_of(const world *w, const lh_pass *pass)
{
    return pass->overlapped ? lhi_pipeline_overlap_f_b(w->p) : 0;
}

static void describe(const world *w, item *it)
{
    const lh_chunk *k = lh_pipeline_chunk(w->p, it->pass.chunk);
    if (it->pass.kind == LH_F) {
        it->time_ns = k->f_ns;
        it->memory = k->mem_f;
    } else if (it->pass.kind == LH_D) {
        it->time_ns = k->d_ns;
        it->memory = k->mem_d;
    } else if (it->pass.kind == LH_B) {
        it->time_ns = k->d_ns + k->w_ns;
        it->memory = k->mem_d + k->mem_w;
    } else {
        it->time_ns = naive_part_of(k->w_ns, &it->pass);
        it->memory = naive_part_of(k->mem_w, &it->pass);
    }
    double factor = overlap_of(w, &it->pass);
    if (factor > 0) {
        double exact = (double)it->time_ns * factor;
        it->time_ns = (int64_t)exact;
        it->time_ns += exact - (double)it->time_ns >= 0.5;
    }
}

static void pair_up(item *const *order, uint32_t count, const world *w)
{
    for (uint32_t i = 0; i + 1 < count; i++)
        if (order[i]->pass.kind == LH_F && overlap_of(w, &order[i]->pass) > 0) {
            order[i]->partner = order[i + 1];
            order[i + 1]->opener = order[i];
        }
}

/* Checks whether `a` is F and `b` the next chunk's F, or the same with D and B.
 */
static bool feeds(const lh_pass *a, const lh_pass *b)
{
    if (a->microbatch != b->microbatch || a->kind == LH_W || b->kind == LH_W)
        return false;
    if (a->kind == LH_F)
        return b->kind == LH_F && b->chunk == a->chunk + 1;
    return b->kind != LH_F && b->chunk + 1 == a->chunk;
}

static void connect(world *w)
{
    for (uint32_t i = 0; i < w->n_items; i++)
        for (uint32_t k = 0; k < w->n_items; k++) {
            item *a = &w->items[i], *b = &w->items[k];
            uint32_t half = lh_pipeline_n_chunks(w->p) / 2;
            if (!feeds(&a->pass, &b->pass) ||
                (lhi_pipeline_is_bidirectional(w->p) &&
                 (a->pass.chunk < half) != (b->pass.chunk < half)))
                continue;
            a->consumer = b;
            b->source = a;
            a->travels = a->device != b->device;
            for (uint32_t l = 0; l < lh_pipeline_n_links(w->p); l++) {
                const lh_link *link = lh_pipeline_link(w->p, l);
                if (link->from != a->device || link->to != b->device)
                    continue;
                a->link = link;
                a->delegated = w->options.delegated && w->options.delegated[l];
            }
        }
}

static wire *wire_of(const world *w, const char *name)
{
    for (uint32_t i = 0; i < w->n_wires; i++)
        if (strcmp(w->wires[i].name, name) == 0)
            return &w->wires[i];
    return NULL;
}

static void make_wires(world *w)
{
    uint32_t n = lh_pipeline_n_links(w->p);
    w->wires = naive_grab(n, sizeof *w->wires);
    for (uint32_t l = 0; l < n; l++) {
        const char *name = lh_pipeline_link(w->p, l)->name;
        if (!wire_of(w, name))
            w->wires[w->n_wires++].name = name;
    }
    if (w->options.fifo)
        return;
    for (uint32_t i = 0; i < lh_schedule_n_link_orders(w->s); i++) {
        const lh_link_order *order = lh_schedule_link_order(w->s, i);
        wire_of(w, order->link)->order = order;
    }
}

static void take_schedule(world *w)
{
    uint32_t devices = lh_pipeline_n_devices(w->p);
    naive_result *out = w->out;
    out->n_devices = devices;
    out->counts = naive_grab(devices, sizeof *out->counts);
    out->runs = naive_grab(devices, sizeof *out->runs);
    out->peak_memory = naive_grab(devices, sizeof *out->peak_memory);
    w->orders = naive_grab(devices, sizeof *w->orders);
    w->dp_free_ns = naive_grab(devices, sizeof *w->dp_free_ns);
    for (uint32_t d = 0; d < devices; d++) {
        lh_schedule_order(w->s, d, &out->counts[d]);
        w->n_items += out->counts[d];
    }
    w->items = naive_grab(w->n_items, sizeof *w->items);
    item *it = w->items;
    for (uint32_t d = 0; d < devices; d++) {
        const lh_pass *order = lh_schedule_order(w->s, d, &out->counts[d]);
        w->orders[d] = naive_grab(out->counts[d], sizeof *w->orders[d]);
        out->runs[d] = naive_grab(out->counts[d], sizeof *out->runs[d]);
        for (uint32_t i = 0; i < out->counts[d]; i++, it++) {
            *it = (item){.pass = order[i], .device = d, .position = i};
            describe(w, it);
            w->orders[d][i] = it;
        }
        pair_up(w->orders[d], out->counts[d], w);
    }
}

/* Offloads activations that exceed a device's memory to the host: one copy at
 * the end of the F, another one in its backward. */
static void rest_in_host(world *w)
{
    if (!w->options.host_copy_ns || !lh_pipeline_has_host(w->p))
        return;
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        for (uint32_t i = 0; i < w->out->counts[d]; i++) {
            item *it = w->orders[d][i];
            int64_t own = 0;
            if (it->pass.kind != LH_F || it->memory <= 0)
                continue;
            for (uint32_t c = 0; c < lh_pipeline_n_chunks(w->p); c++)
                if (lh_pipeline_chunk(w->p, c)->device == d)
                    own += lh_pipeline_chunk(w->p, c)->mem_static;
            /* The pass itself and all earlier ones that are not offloaded. */
            for (uint32_t k = 0; k <= i; k++)
                own += w->orders[d][k]->memory;
            for (uint32_t k = 0; k < i; k++)
                if (w->orders[d][k]->rests && w->orders[d][k]->back > i)
                    own -= w->orders[d][k]->memory;
            if (own <= lh_pipeline_device_limit(w->p, d))
                continue;
            it->rests = true;
            it->time_ns += w->options.host_copy_ns;
            for (uint32_t k = i + 1; k < w->out->counts[d]; k++) {
                item *later = w->orders[d][k];
                if (later->pass.chunk != it->pass.chunk ||
                    later->pass.microbatch != it->pass.microbatch ||
                    later->pass.kind == LH_W || it->back > 0)
                    continue;
                it->back = k;
                later->time_ns += w->options.host_copy_ns;
            }
        }
}

/* --- events at the current time; each returns whether anything changed ---- */

static bool end_passes(world *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->n_items; i++) {
        item *it = &w->items[i];
        if (!it->started || it->ended || it->end_ns != w->now)
            continue;
        it->ended = any = true;
        if (it->pass.kind == LH_W || it->pass.kind == LH_B)
            naive_scatter_if_last(w, it->pass.chunk);
    }
    return any;
}

/* Returns when a departed message's entry in the send queue is free. */
static int64_t free_of(const world *w, const item *it)
{
    return w->options.coupled_until_sent ? it->sent_ns : it->arrive_ns;
}

/* Returns the number of used entries in the device's send queue. */
static uint32_t in_queue(const world *w, uint32_t device)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_items; i++) {
        const item *it = &w->items[i];
        if (it->device == device && it->issued && !it->delegated &&
            !(it->departed && free_of(w, it) <= w->now))
            n++;
    }
    return n;
}

static bool go_on(world *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->n_items; i++) {
        item *it = &w->items[i];
        if (!it->ended || it->gone_on)
            continue;
        uint32_t queue = w->options.coupled_queue;
        if (it->travels && !it->delegated && queue &&
            in_queue(w, it->device) >= queue)
            continue;
        it->gone_on = any = true;
        it->issued_ns = w->now;
        if (it->opener && it->opener->travels) {
            it->opener->issued = true;
            it->opener->nth = w->n_issued++;
        }
        if (it->travels && !it->partner) {
            it->issued = true;
            it->nth = w->n_issued++;
        }
    }
    return any;
}

/* Checks whether the receiver has reached the pass that needs the message. */
static bool is_posted(const world *w, const item *message)
{
    const item *to = message->consumer;
    if (w->options.receives == LH_RECEIVES_EARLY || message->delegated)
        return true;
    for (uint32_t i = to->position; i-- > 0;) {
        const item *before = w->orders[to->device][i];
        if (before == to->opener)
            continue;
        if (w->options.receives == LH_RECEIVES_LATE ||
            before->pass.kind != LH_W)
            return before->gone_on;
    }
    return true;
}

static bool make_ready(world *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->n_items; i++) {
        item *it = &w->items[i];
        if (!it->issued || it->ready || !is_posted(w, it))
            continue;
        it->ready = any = true;
        it->ready_ns = w->now;
    }
    return any;
}

static bool has_input(const world *w, const item *it)
{
    if (it->pass.kind == LH_F && w->gathered_ns[it->pass.chunk] > w->now)
        return false;
    if (!naive_has_operations(w, &it->pass))
        return false;
    if (it->partner && !has_input(w, it->partner))
        return false;
    if (!it->source)
        return true;
    if (it->source->travels)
        return it->source->departed && it->source->arrive_ns <= w->now;
    return it->source->partner ? it->source->partner->ended : it->source->ended;
}

static bool start_passes(world *w)
{
    bool any = false;
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        for (uint32_t i = 0; i < w->out->counts[d]; i++) {
            item *it = w->orders[d][i];
            if (it->gone_on)
                continue;
            if (!it->started && has_input(w, it)) {
                it->started = any = true;
                it->start_ns = w->now;
                it->end_ns = w->now + it->time_ns;
                naive_launch(w, &it->pass);
                if (naive_begins_gathered(w, it))
                    naive_gather_next(w, d);
            }
            break;
        }
    return any;
}

static void depart(world *w, wire *on, item *it)
{
    if (naive_shares_rates(w)) {
        it->turn = ++w->n_turns;
        return;
    }
    it->departed = true;
    it->depart_ns = it->ready_ns;
    if (on->free_ns > it->depart_ns)
        it->depart_ns = on->free_ns;
    it->sent_ns = on->free_ns = it->depart_ns + it->link->transfer_ns;
    it->arrive_ns = it->sent_ns + it->link->latency_ns;
}

static item *find(const world *w, const lh_pass *pass)
{
    for (uint32_t i = 0; i < w->n_items; i++)
        if (w->items[i].pass.chunk == pass->chunk &&
            w->items[i].pass.microbatch == pass->microbatch &&
            w->items[i].pass.kind == pass->kind)
            return &w->items[i];
    return NULL;
}

/* Enters one message: among those that became ready now the one from the lowest
 * device, and among that device's the first produced. */
static bool enter_one(world *w, bool *entered)
{
    item *first = NULL;
    for (uint32_t i = 0; i < w->n_items; i++) {
        item *it = &w->items[i];
        if (!it->ready || entered[i])
            continue;
        if (!first || it->device < first->device ||
            (it->device == first->device && it->nth < first->nth))
            first = it;
    }
    if (!first)
        return false;
    entered[first - w->items] = true;
    if (!first->link) {
        first->departed = true;
        first->depart_ns = first->sent_ns = first->arrive_ns = first->ready_ns;
        return true;
    }
    wire *on = wire_of(w, first->link->name);
    if (!on->order) {
        depart(w, on, first);
        return true;
    }
    while (on->next < on->order->n_passes) {
        item *head = find(w, &on->order->passes[on->next]);
        if (!entered[head - w->items])
            break;
        depart(w, on, head);
        on->next++;
    }
    return true;
}

/* --- clock ---------------------------------------------------------------- */

static void settle(world *w, bool *entered)
{
    bool any;
    do {
        do {
            any = naive_move(w);
            any |= end_passes(w);
            any |= go_on(w);
            any |= make_ready(w);
            any |= start_passes(w);
        } while (any);
        naive_scatter_copies(w);
        any = enter_one(w, entered);
        if (!any)
            any = naive_send_piece(w);
        if (!any)
            any = naive_enter_piece(w);
    } while (any);
}

/* Returns the next time at which anything can change. */
static int64_t next_moment(world *w)
{
    int64_t next = NEVER;
    for (uint32_t i = 0; i < w->n_items; i++) {
        const item *it = &w->items[i];
        if (it->started && it->end_ns > w->now && it->end_ns < next)
            next = it->end_ns;
        if (it->departed && it->arrive_ns > w->now && it->arrive_ns < next)
            next = it->arrive_ns;
        if (it->departed && free_of(w, it) > w->now && free_of(w, it) < next)
            next = free_of(w, it);
    }
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(w->p); c++)
        if (w->gathered_ns[c] > w->now && w->gathered_ns[c] < next)
            next = w->gathered_ns[c];
    for (uint32_t i = 0; i < lhi_pipeline_n_dp_ops(w->p); i++)
        if (w->operated_ns[i] > w->now && w->operated_ns[i] < next)
            next = w->operated_ns[i];
    for (uint32_t d = 0; d < w->out->n_devices; d++)
        if (w->sharers[d].free_ns > w->now && w->sharers[d].free_ns < next)
            next = w->sharers[d].free_ns;
    for (uint32_t i = 0; i < w->n_wires; i++)
        if (w->wires[i].free_ns > w->now && w->wires[i].free_ns < next)
            next = w->wires[i].free_ns;
    return naive_advance(w, next);
}

/* --- result --------------------------------------------------------------- */

static void reach(naive_result *out, int64_t time_ns)
{
    if (time_ns > out->makespan_ns)
        out->makespan_ns = time_ns;
}

static void take_memory(world *w)
{
    for (uint32_t d = 0; d < w->out->n_devices; d++) {
        int64_t fixed = 0, sum = 0, most = 0;
        for (uint32_t c = 0; c < lh_pipeline_n_chunks(w->p); c++)
            if (lh_pipeline_chunk(w->p, c)->device == d)
                fixed += lh_pipeline_chunk(w->p, c)->mem_static;
        for (uint32_t i = 0; i < w->out->counts[d]; i++) {
            sum += w->orders[d][i]->memory;
            if (sum > most)
                most = sum;
        }
        w->out->peak_memory[d] = fixed + most;
    }
}

static void take_result(world *w)
{
    naive_result *out = w->out;
    out->messages = naive_grab(w->n_items, sizeof *out->messages);
    for (uint32_t i = 0; i < w->n_items; i++) {
        const item *it = &w->items[i];
        if (!it->gone_on || (it->travels && !it->departed))
            out->deadlock = true;
        out->runs[it->device][it->position] =
            (naive_run){it->pass, it->start_ns, it->end_ns, it->issued_ns};
        reach(out, it->end_ns);
        if (it->travels)
            out->messages[out->n_messages++] = (naive_message){
                .producer = it->pass,
                .consumer = it->consumer->pass,
                .from = it->device,
                .to = it->consumer->device,
                .link = it->link ? it->link->name : NULL,
                .produced_ns = it->partner ? it->partner->end_ns : it->end_ns,
                .ready_ns = it->ready_ns,
                .depart_ns = it->depart_ns,
                .sent_ns = it->sent_ns,
                .arrive_ns = it->arrive_ns,
            };
    }
    for (uint32_t i = 0; i < out->n_collectives; i++)
        reach(out, out->collectives[i].arrive_ns);
    take_memory(w);
}

naive_result *naive_simulate(const lh_pipeline *p, const lh_schedule *s,
                             const lh_sim_options *options)
{
    world w = {.p = p, .s = s, .out = naive_grab(1, sizeof *w.out)};
    if (options)
        w.options = *options;
    take_schedule(&w);
    rest_in_host(&w);
    connect(&w);
    make_wires(&w);
    naive_find_sharers(&w);
    naive_gather_all(&w);
    bool *entered = naive_grab(w.n_items, sizeof *entered);
    for (w.now = 0; w.now != NEVER; w.now = next_moment(&w))
        settle(&w, entered);
    take_result(&w);
    for (uint32_t d = 0; d < w.out->n_devices; d++)
        free(w.orders[d]);
    free(w.orders);
    free(w.items);
    free(w.wires);
    free(w.dp_free_ns);
    free(w.gathered_ns);
    free(w.operated_ns);
    free(w.gathers);
    free(w.due);
    for (uint32_t d = 0; d < w.out->n_devices; d++) {
        free(w.sharers[d].queue);
        free(w.sharers[d].whole_ns);
        free(w.sharers[d].ops);
    }
    free(w.sharers);
    free(entered);
    return w.out;
}

void naive_free(naive_result *result)
{
    if (!result)
        return;
    for (uint32_t d = 0; d < result->n_devices; d++)
        free(result->runs[d]);
    free(result->runs);
    free(result->counts);
    free(result->peak_memory);
    free(result->messages);
    free(result->collectives);
    free(result);
}
