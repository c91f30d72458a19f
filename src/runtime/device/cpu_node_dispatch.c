/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/cpu_node_dispatch.h"

#include <string.h>

/* ---- memory ---- */

/* Computes each expert-parallel rank's relay on this node, the ranks that this
 * rank relays for, and the ranks on its node; node_of[i]: node of rank i. */
static void find_members(lhi_cpu *cpu, const uint32_t *node_of)
{
    struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    uint32_t n = cpu->n_expert_ranks, me = cpu->expert_rank, near = 0,
             sources = 0;
    memcpy(d->node_of, node_of, n * sizeof *node_of);
    for (uint32_t i = 0; i < n; i++) {
        d->relays[i] = lhi_cpu_find_relay(node_of, n, i, node_of[me]);
        d->is_relay[i] = lhi_cpu_find_relay(node_of, n, me, node_of[i]) == i;
        if (node_of[i] == node_of[me])
            d->node_members[near++] = i;
        if (d->relays[i] == me)
            d->sources[sources++] = i;
    }
}

bool lhi_cpu_make_node_dispatch(lhi_cpu *cpu, const lhi_cpu_options *o)
{
    lhi_arena *mem = cpu->mem;
    uint32_t n = cpu->n_expert_ranks;
    size_t width = (size_t)cpu->h + cpu->topk;
    if (cpu->node_topology.nodes == 0)
        return true;
    struct lhi_cpu_node_dispatch *d =
        LHI_NEW(mem, struct lhi_cpu_node_dispatch, 1);
    cpu->node_dispatch = d;
    if (!d || !(d->node_of = LHI_NEW(mem, uint32_t, n)) ||
        !(d->node_members =
              LHI_NEW(mem, uint32_t, cpu->node_topology.node_ranks)) ||
        !(d->sources = LHI_NEW(mem, uint32_t, cpu->node_topology.sources)) ||
        !(d->relays = LHI_NEW(mem, uint32_t, n)) ||
        !(d->is_relay = LHI_NEW(mem, bool, n)) ||
        !(d->headers = LHI_NEW(mem, int32_t, lhi_cpu_header_words(cpu))) ||
        !(d->first_copies =
              LHI_NEW(mem, int32_t, lhi_cpu_copy_table_size(cpu))) ||
        !(d->sent = lhi_cpu_alloc_floats(
              mem, (size_t)cpu->node_topology.nodes * cpu->max_rows, width)) ||
        !(d->relayed = lhi_cpu_alloc_floats(
              mem, (size_t)cpu->node_topology.sources * cpu->max_rows,
              width)) ||
        !(d->copies =
              lhi_cpu_alloc_floats(mem, lhi_cpu_max_copies(cpu), cpu->h + 1)))
        return false;
    find_members(cpu, o->expert_nodes);
    return true;
}

bool lhi_cpu_make_copies(const lhi_cpu *cpu, lhi_arena *mem,
                         lhi_cpu_saved_activations *kept)
{
    size_t all = cpu->node_topology.sources * lhi_cpu_choice_table_size(cpu);
    return cpu->node_topology.nodes == 0 ||
           ((kept->copy_index = LHI_NEW(mem, int32_t, all)) &&
            (kept->copy_routing_weights = lhi_cpu_alloc_floats(mem, all, 1)) &&
            (kept->copy_offsets =
                 LHI_NEW(mem, int32_t, cpu->node_topology.node_ranks + 1)));
}

/* ---- routes ---- */

/* Checks whether an expert choice was kept (not dropped for capacity) and its
 * expert is on the node. */
static bool is_choice_on_node(const lhi_cpu *cpu,
                              const lhi_cpu_saved_activations *kept,
                              size_t choice, uint32_t node)
{
    uint32_t member =
        (uint32_t)kept->topk_experts[choice] / cpu->n_local_experts;
    return kept->expert_rows[choice] >= 0 &&
           cpu->node_dispatch->node_of[member] == node;
}

/* Writes the routing header for each rank: the row counts for its experts; for
 * a relay also the expert choices and routing weights of the rows it forwards.
 * gives[i] bytes are sent, gets[i] received. */
static void write_headers(const lhi_cpu *cpu,
                          const lhi_cpu_saved_activations *kept, size_t *gives,
                          size_t *gets)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    size_t table = lhi_cpu_choice_table_size(cpu),
           own = (size_t)cpu->router_rows * cpu->topk;
    int32_t *to = d->headers;
    for (uint32_t i = 0; i < cpu->n_expert_ranks; i++) {
        for (uint32_t e = i * cpu->n_local_experts;
             e < (i + 1) * cpu->n_local_experts; e++)
            *to++ = kept->expert_offsets[e + 1] - kept->expert_offsets[e];
        gives[i] = (cpu->n_local_experts + (d->is_relay[i] ? 2 * table : 0)) *
                   sizeof *to;
        gets[i] = (cpu->n_local_experts +
                   (d->relays[i] == cpu->expert_rank ? 2 * table : 0)) *
                  sizeof *to;
        if (!d->is_relay[i])
            continue;
        for (size_t k = 0; k < table; k++)
            to[k] = k < own && is_choice_on_node(cpu, kept, k, d->node_of[i])
                        ? kept->topk_experts[k]
                        : -1;
        memcpy(to + table, kept->routing_weights,
               own * sizeof *kept->routing_weights);
        to += 2 * table;
    }
}

/* Reads the received routing headers `from`: fills the offsets of received
 * rows, `counts` (rows per source rank and expert), and the tables of the rows
 * that this rank relays to its node's experts. */
static void read_headers(const lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                         const int32_t *from, int32_t *counts)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    size_t table = lhi_cpu_choice_table_size(cpu), at = 0;
    int32_t *first = lhi_cpu_own_recv_offsets(cpu, kept);
    first[0] = 0;
    for (uint32_t i = 0; i < cpu->n_expert_ranks; i++) {
        for (uint32_t e = 0; e < cpu->n_local_experts; e++, first++) {
            *counts = *from++;
            first[1] = first[0] + *counts++;
        }
        if (d->relays[i] != cpu->expert_rank)
            continue;
        memcpy(kept->copy_index + at, from, table * sizeof *from);
        memcpy(kept->copy_routing_weights + at, from + table,
               table * sizeof *from);
        from += 2 * table;
        at += table;
    }
}

/* Returns the index of rank `member` in a rank list that contains it. */
static uint32_t find_index(const uint32_t *list, uint32_t member)
{
    uint32_t i = 0;
    while (list[i] != member)
        i++;
    return i;
}

/* Returns the index in d->first_copies of the copies from source `source` for
 * expert `expert`. */
static size_t find_start(const lhi_cpu *cpu, size_t source, int32_t expert)
{
    uint32_t of = (uint32_t)expert;
    uint32_t q =
        find_index(cpu->node_dispatch->node_members, of / cpu->n_local_experts);
    return (q * (size_t)cpu->node_topology.sources + source) *
               cpu->n_local_experts +
           of % cpu->n_local_experts;
}

/* Replaces the expert index of each relayed row's copy by the copy's position
 * in send order: by the expert's rank, then source, then expert, as the
 * receiver expects. */
static void compute_copy_positions(lhi_cpu *cpu,
                                   lhi_cpu_saved_activations *kept)
{
    size_t table = lhi_cpu_choice_table_size(cpu),
           all = cpu->node_topology.sources * table;
    size_t each = (size_t)cpu->node_topology.sources * cpu->n_local_experts;
    int32_t *starts = cpu->node_dispatch->first_copies;
    memset(starts, 0, lhi_cpu_copy_table_size(cpu) * sizeof *starts);
    for (size_t k = 0; k < all; k++)
        if (kept->copy_index[k] >= 0)
            starts[find_start(cpu, k / table, kept->copy_index[k]) + 1]++;
    for (size_t i = 1; i < lhi_cpu_copy_table_size(cpu); i++)
        starts[i] += starts[i - 1];
    for (uint32_t q = 0; q <= cpu->node_topology.node_ranks; q++)
        kept->copy_offsets[q] = starts[q * each];
    for (size_t k = 0; k < all; k++)
        if (kept->copy_index[k] >= 0)
            kept->copy_index[k] =
                starts[find_start(cpu, k / table, kept->copy_index[k])]++;
}

/* Runs an all-to-all of the group: sends gives[i] bytes to rank i and receives
 * gets[i] from it. Stores its status; after a failure all later ones of the
 * pass do nothing. */
static void exchange(lhi_cpu *cpu, lhi_group *group, const void *out,
                     const size_t *gives, void *in, const size_t *gets)
{
    if (cpu->collective_status == LH_OK)
        cpu->collective_status = lhi_group_all_to_all(
            group, out, gives, in, gets, &cpu->collective_err);
}

/* ---- between nodes ---- */

/* Checks whether one of a row's chosen experts is on the node. */
static bool is_row_for_node(const lhi_cpu *cpu,
                            const lhi_cpu_saved_activations *kept, size_t row,
                            uint32_t node)
{
    for (uint32_t j = 0; j < cpu->topk; j++)
        if (is_choice_on_node(cpu, kept, row * cpu->topk + j, node))
            return true;
    return false;
}

/* Checks whether a row that this rank relays has to be copied to any expert on
 * its node. */
static bool has_copies(const lhi_cpu *cpu,
                       const lhi_cpu_saved_activations *kept, size_t row)
{
    for (uint32_t j = 0; j < cpu->topk; j++)
        if (kept->copy_index[row * cpu->topk + j] >= 0)
            return true;
    return false;
}

/* Computes in gives[i] the bytes of `width`-float rows that this rank sends to
 * relay i (the rank of a node that forwards them to the node's experts). */
static void compute_send_bytes(const lhi_cpu *cpu,
                               const lhi_cpu_saved_activations *kept,
                               size_t width, size_t *gives)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    memset(gives, 0, cpu->n_expert_ranks * sizeof *gives);
    for (uint32_t i = 0; i < cpu->n_expert_ranks; i++)
        for (size_t row = 0; d->is_relay[i] && row < cpu->router_rows; row++)
            if (is_row_for_node(cpu, kept, row, d->node_of[i]))
                gives[i] += width * sizeof(float);
}

/* Computes in gets[i] the bytes of rows with `width` floats that this rank
 * receives from source rank i as a relay, which forwards them to its node's
 * experts. */
static void compute_recv_bytes(const lhi_cpu *cpu,
                               const lhi_cpu_saved_activations *kept,
                               size_t width, size_t *gets)
{
    memset(gets, 0, cpu->n_expert_ranks * sizeof *gets);
    for (size_t k = 0; k < (size_t)cpu->node_topology.sources * cpu->max_rows;
         k++)
        if (has_copies(cpu, kept, k))
            gets[cpu->node_dispatch->sources[k / cpu->max_rows]] +=
                width * sizeof(float);
}

/* Context of the callback that runs once the headers have arrived. */
typedef struct exchange_context {
    lhi_cpu *cpu;
    lhi_cpu_saved_activations *kept;
} exchange_context;

/* Returns the receive buffer for the routing headers of all ranks. */
static int32_t *get_header_buffer(const lhi_cpu *cpu)
{
    return cpu->node_dispatch->headers +
           (size_t)cpu->n_expert_ranks * cpu->n_local_experts +
           2 * cpu->node_topology.nodes * lhi_cpu_choice_table_size(cpu);
}

/* Reads the received routing headers and computes positions and sizes of the
 * rows that follow them; `context`: an exchange_context. */
static void handle_headers(void *context)
{
    const exchange_context *t = context;
    read_headers(t->cpu, t->kept, get_header_buffer(t->cpu),
                 lhi_cpu_row_counts(t->cpu, t->cpu->expert_tensor_rank));
    compute_copy_positions(t->cpu, t->kept);
    compute_recv_bytes(t->cpu, t->kept, t->cpu->h,
                       t->cpu->exchange_sizes + 3 * t->cpu->n_expert_ranks);
}

/* Sends each row of x once to the relay (forwarding rank) of every node that
 * has one of its experts. `tells`: sends routing headers along, which relays
 * still lack in the forward pass. */
static void send_to_relays(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                           const float *x, bool tells)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    size_t h = cpu->h, n = cpu->n_expert_ranks;
    size_t *gives = cpu->exchange_sizes + 2 * n, *gets = gives + n;
    exchange_context t = {cpu, kept};
    float *to = d->sent;
    for (uint32_t i = 0; i < cpu->n_expert_ranks; i++)
        for (size_t row = 0; d->is_relay[i] && row < cpu->router_rows; row++)
            if (is_row_for_node(cpu, kept, row, d->node_of[i])) {
                memcpy(to, x + row * h, h * sizeof *x);
                to += h;
            }
    compute_send_bytes(cpu, kept, h, gives);
    if (!tells) {
        compute_recv_bytes(cpu, kept, h, gets);
        exchange(cpu, cpu->expert_group, d->sent, gives, d->relayed, gets);
        return;
    }
    if (cpu->collective_status != LH_OK)
        return;
    write_headers(cpu, kept, cpu->exchange_sizes, cpu->exchange_sizes + n);
    const lhi_group_bytes words = {d->headers, cpu->exchange_sizes, false,
                                   get_header_buffer(cpu),
                                   cpu->exchange_sizes + n};
    const lhi_group_bytes rows = {d->sent, gives, false, d->relayed, gets};
    cpu->collective_status = lhi_group_all_to_all_with_counts(
        cpu->expert_group, &words, &rows, handle_headers, &t,
        &cpu->collective_err);
}

/* ---- within the node ---- */

/* Counts the rows that this rank's experts receive from the ranks before
 * `member`. */
static size_t count_rows_before(const lhi_cpu *cpu,
                                const lhi_cpu_saved_activations *kept,
                                uint32_t member)
{
    const int32_t *first = lhi_cpu_own_recv_offsets(cpu, kept);
    return (size_t)(first[member * cpu->n_local_experts] - first[0]);
}

/* Counts the rows that this rank's experts receive from rank `member`. */
static size_t count_rows_from(const lhi_cpu *cpu,
                              const lhi_cpu_saved_activations *kept,
                              uint32_t member)
{
    return count_rows_before(cpu, kept, member + 1) -
           count_rows_before(cpu, kept, member);
}

/* Exchanges rows with `width` floats between relays (forwarding ranks) and
 * experts' ranks of one node: copies of tokens to the experts or, with `back`,
 * expert outputs to the relays. `by_relay`: buffer on the experts' side,
 * ordered by relay. */
static void exchange_within_node(lhi_cpu *cpu,
                                 const lhi_cpu_saved_activations *kept,
                                 size_t width, float *by_relay, bool back)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    uint32_t n = cpu->node_topology.node_ranks;
    size_t *relays = cpu->exchange_sizes,
           *here = cpu->exchange_sizes + cpu->n_expert_ranks;
    memset(here, 0, n * sizeof *here);
    for (uint32_t q = 0; q < n; q++)
        relays[q] =
            (size_t)(kept->copy_offsets[q + 1] - kept->copy_offsets[q]) *
            width * sizeof(float);
    for (uint32_t i = 0; i < cpu->n_expert_ranks; i++)
        here[find_index(d->node_members, d->relays[i])] +=
            count_rows_from(cpu, kept, i) * width * sizeof(float);
    if (n == 1)
        memcpy(back ? d->copies : by_relay, back ? by_relay : d->copies, *here);
    else if (back)
        exchange(cpu, cpu->intra_node_group, by_relay, here, d->copies, relays);
    else
        exchange(cpu, cpu->intra_node_group, d->copies, relays, by_relay, here);
}

/* Lets the collectives of group `second` start before those of `first` are
 * complete, so that relays forward copies while other copies still arrive. */
static void overlap_groups(lhi_group *second, const lhi_group *first)
{
    if (second && first)
        lhi_group_overlap_next(second, first);
}

/* Copies rows with `width` floats from `by_relay`, ordered by the relay that
 * forwarded them, to `by_rank`, ordered by source rank; with `back` in the
 * other direction. */
static void reorder(const lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                    size_t width, float *by_relay, float *by_rank, bool back)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    for (uint32_t q = 0; q < cpu->node_topology.node_ranks; q++)
        for (uint32_t i = 0; i < cpu->n_expert_ranks; i++) {
            if (d->relays[i] != d->node_members[q])
                continue;
            size_t n = count_rows_from(cpu, kept, i) * width;
            float *place = by_rank + count_rows_before(cpu, kept, i) * width;
            memcpy(back ? by_relay : place, back ? place : by_relay,
                   n * sizeof *place);
            by_relay += n;
        }
}

void lhi_cpu_send_rows_via_relays(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                                  const float *x, bool shares, float *in,
                                  float *room)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    size_t h = cpu->h, width = h + shares;
    send_to_relays(cpu, kept, x, !shares);
    if (cpu->collective_status != LH_OK)
        return;
    const float *from = d->relayed;
    for (size_t k = 0; k < (size_t)cpu->node_topology.sources * cpu->max_rows;
         k++) {
        for (size_t i = k * cpu->topk; i < (k + 1) * cpu->topk; i++) {
            if (kept->copy_index[i] < 0)
                continue;
            float *to = d->copies + (size_t)kept->copy_index[i] * width;
            memcpy(to, from, h * sizeof *to);
            if (shares)
                to[h] = kept->copy_routing_weights[i];
        }
        from += has_copies(cpu, kept, k) ? h : 0;
    }
    overlap_groups(cpu->intra_node_group, cpu->expert_group);
    exchange_within_node(cpu, kept, width, room, false);
    if (cpu->collective_status == LH_OK)
        reorder(cpu, kept, width, room, in, false);
}

/* Sums, for each row that this rank relays, the chosen experts' outputs on its
 * node (`width` floats), times their routing weights, into d->relayed. With
 * `gradients` sums input gradients without weights, and appends the routing
 * weights' gradients. */
static void add_copies(const lhi_cpu *cpu,
                       const lhi_cpu_saved_activations *kept, bool gradients,
                       size_t width)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    size_t h = cpu->h, each = h + gradients;
    float *to = d->relayed;
    for (size_t k = 0; k < (size_t)cpu->node_topology.sources * cpu->max_rows;
         k++) {
        if (!has_copies(cpu, kept, k))
            continue;
        memset(to, 0, width * sizeof *to);
        for (uint32_t j = 0; j < cpu->topk; j++) {
            size_t choice = k * cpu->topk + j;
            if (kept->copy_index[choice] < 0)
                continue;
            const float *x =
                d->copies + (size_t)kept->copy_index[choice] * each;
            float by = gradients ? 1 : kept->copy_routing_weights[choice];
            for (size_t i = 0; i < h; i++)
                to[i] += by * x[i];
            if (gradients)
                to[h + j] = x[h];
        }
        to += width;
    }
}

/* ---- return path ---- */

/* Copies the routing weights' gradients from the returned rows to
 * cpu->d_routing_weights. */
static void read_routing_weight_gradients(lhi_cpu *cpu,
                                          const lhi_cpu_saved_activations *kept)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    const float *from = d->sent;
    for (uint32_t i = 0; i < cpu->n_expert_ranks; i++)
        for (size_t row = 0; d->is_relay[i] && row < cpu->router_rows; row++) {
            if (!is_row_for_node(cpu, kept, row, d->node_of[i]))
                continue;
            for (uint32_t j = 0; j < cpu->topk; j++) {
                size_t choice = row * cpu->topk + j;
                if (is_choice_on_node(cpu, kept, choice, d->node_of[i]))
                    cpu->d_routing_weights[kept->expert_rows[choice]] =
                        from[cpu->h + j];
            }
            from += (size_t)cpu->h + cpu->topk;
        }
}

void lhi_cpu_return_rows_via_relays(lhi_cpu *cpu,
                                    const lhi_cpu_saved_activations *kept,
                                    float *made, bool gradients)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    size_t width = (size_t)cpu->h + (gradients ? cpu->topk : 0);
    size_t *gives = cpu->exchange_sizes, *gets = gives + cpu->n_expert_ranks;
    reorder(cpu, kept, (size_t)cpu->h + gradients, cpu->dispatch_buffer, made,
            true);
    exchange_within_node(cpu, kept, (size_t)cpu->h + gradients,
                         cpu->dispatch_buffer, true);
    if (cpu->collective_status != LH_OK)
        return;
    add_copies(cpu, kept, gradients, width);
    compute_send_bytes(cpu, kept, width, gets);
    compute_recv_bytes(cpu, kept, width, gives);
    overlap_groups(cpu->expert_group, cpu->intra_node_group);
    exchange(cpu, cpu->expert_group, d->relayed, gives, d->sent, gets);
    if (gradients && cpu->collective_status == LH_OK)
        read_routing_weight_gradients(cpu, kept);
}

void lhi_cpu_add_returned_rows(const lhi_cpu *cpu,
                               const lhi_cpu_saved_activations *kept,
                               bool gradients, float *x)
{
    const struct lhi_cpu_node_dispatch *d = cpu->node_dispatch;
    const float *from = d->sent;
    for (uint32_t i = 0; i < cpu->n_expert_ranks; i++)
        for (size_t row = 0; d->is_relay[i] && row < cpu->router_rows; row++)
            if (is_row_for_node(cpu, kept, row, d->node_of[i])) {
                cpu->k->add(x + row * cpu->h, from, cpu->h);
                from += (size_t)cpu->h + (gradients ? cpu->topk : 0);
            }
}
