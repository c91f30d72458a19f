/* SPDX-License-Identifier: Apache-2.0 */
#include "dev/cpu_nodes.h"

#include <string.h>

/* --- memory
 * -------------------------------------------------------------------- */

/* Computes each member's relay, this rank's sources and the ranks on its node.
 */
static void find_members(lhi_cpu *cpu, const uint32_t *node_of)
{
    struct lhi_cpu_nodes *d = cpu->nodes;
    uint32_t n = cpu->n_expert, me = cpu->expert, near = 0, sources = 0;
    memcpy(d->node_of, node_of, n * sizeof *node_of);
    for (uint32_t i = 0; i < n; i++) {
        d->relays[i] = lhi_cpu_relay_of(node_of, n, i, node_of[me]);
        d->is_relay[i] = lhi_cpu_relay_of(node_of, n, me, node_of[i]) == i;
        if (node_of[i] == node_of[me])
            d->near[near++] = i;
        if (d->relays[i] == me)
            d->sources[sources++] = i;
    }
}

bool lhi_cpu_make_nodes(lhi_cpu *cpu, const lhi_cpu_options *o)
{
    lhi_arena *mem = cpu->mem;
    uint32_t n = cpu->n_expert;
    size_t width = (size_t)cpu->h + cpu->chosen;
    if (cpu->spread.nodes == 0)
        return true;
    struct lhi_cpu_nodes *d = LHI_NEW(mem, struct lhi_cpu_nodes, 1);
    cpu->nodes = d;
    if (!d || !(d->node_of = LHI_NEW(mem, uint32_t, n)) ||
        !(d->near = LHI_NEW(mem, uint32_t, cpu->spread.near)) ||
        !(d->sources = LHI_NEW(mem, uint32_t, cpu->spread.sources)) ||
        !(d->relays = LHI_NEW(mem, uint32_t, n)) ||
        !(d->is_relay = LHI_NEW(mem, bool, n)) ||
        !(d->words = LHI_NEW(mem, int32_t, lhi_cpu_n_words(cpu))) ||
        !(d->starts = LHI_NEW(mem, int32_t, lhi_cpu_n_starts(cpu))) ||
        !(d->sent = lhi_cpu_floats(
              mem, (size_t)cpu->spread.nodes * cpu->most_r, width)) ||
        !(d->relayed = lhi_cpu_floats(
              mem, (size_t)cpu->spread.sources * cpu->most_r, width)) ||
        !(d->copies = lhi_cpu_floats(mem, lhi_cpu_n_copies(cpu), cpu->h + 1)))
        return false;
    find_members(cpu, o->expert_nodes);
    return true;
}

bool lhi_cpu_make_copies(const lhi_cpu *cpu, lhi_arena *mem,
                         lhi_cpu_kept *kept)
{
    size_t all = cpu->spread.sources * lhi_cpu_table(cpu);
    return cpu->spread.nodes == 0 ||
           ((kept->copy = LHI_NEW(mem, int32_t, all)) &&
            (kept->copy_shares = lhi_cpu_floats(mem, all, 1)) &&
            (kept->copy_first = LHI_NEW(mem, int32_t, cpu->spread.near + 1)));
}

/* --- routes ------------------------------------------------------------------
 */

/* Checks whether a choice was not dropped and its expert is on the node. */
static bool is_on(const lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t choice,
                  uint32_t node)
{
    uint32_t member = (uint32_t)kept->chosen[choice] / cpu->here;
    return kept->place[choice] >= 0 && cpu->nodes->node_of[member] == node;
}

/* Writes the routing header for each rank: the row counts for its experts; for
 * a relay also the choices and routing weights of its rows. gives[i] bytes are
 * sent, gets[i] received. */
static void write_words(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                        size_t *gives, size_t *gets)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    size_t table = lhi_cpu_table(cpu), own = (size_t)cpu->routes_r * cpu->chosen;
    int32_t *to = d->words;
    for (uint32_t i = 0; i < cpu->n_expert; i++) {
        for (uint32_t e = i * cpu->here; e < (i + 1) * cpu->here; e++)
            *to++ = kept->first[e + 1] - kept->first[e];
        gives[i] = (cpu->here + (d->is_relay[i] ? 2 * table : 0)) * sizeof *to;
        gets[i] = (cpu->here + (d->relays[i] == cpu->expert ? 2 * table : 0)) *
                  sizeof *to;
        if (!d->is_relay[i])
            continue;
        for (size_t k = 0; k < table; k++)
            to[k] = k < own && is_on(cpu, kept, k, d->node_of[i])
                        ? kept->chosen[k]
                        : -1;
        memcpy(to + table, kept->shares, own * sizeof *kept->shares);
        to += 2 * table;
    }
}

/* Reads the received headers. `counts` receives the row counts as without
 * node-aware dispatch. */
static void read_words(const lhi_cpu *cpu, lhi_cpu_kept *kept,
                       const int32_t *from, int32_t *counts)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    size_t table = lhi_cpu_table(cpu), at = 0;
    int32_t *first = lhi_cpu_own_from(cpu, kept);
    first[0] = 0;
    for (uint32_t i = 0; i < cpu->n_expert; i++) {
        for (uint32_t e = 0; e < cpu->here; e++, first++) {
            *counts = *from++;
            first[1] = first[0] + *counts++;
        }
        if (d->relays[i] != cpu->expert)
            continue;
        memcpy(kept->copy + at, from, table * sizeof *from);
        memcpy(kept->copy_shares + at, from + table, table * sizeof *from);
        from += 2 * table;
        at += table;
    }
}

static uint32_t index_of(const uint32_t *list, uint32_t member)
{
    uint32_t i = 0;
    while (list[i] != member)
        i++;
    return i;
}

/* Returns the index in d->starts of the copies for one expert from one source.
 */
static size_t start_of(const lhi_cpu *cpu, size_t source, int32_t expert)
{
    uint32_t of = (uint32_t)expert;
    uint32_t q = index_of(cpu->nodes->near, of / cpu->here);
    return (q * (size_t)cpu->spread.sources + source) * cpu->here +
           of % cpu->here;
}

/* Replaces expert indices by positions among the copies, ordered by the
 * expert's rank, then by source, then by expert, as the receiver expects. */
static void place_copies(lhi_cpu *cpu, lhi_cpu_kept *kept)
{
    size_t table = lhi_cpu_table(cpu), all = cpu->spread.sources * table;
    size_t each = (size_t)cpu->spread.sources * cpu->here;
    int32_t *starts = cpu->nodes->starts;
    memset(starts, 0, lhi_cpu_n_starts(cpu) * sizeof *starts);
    for (size_t k = 0; k < all; k++)
        if (kept->copy[k] >= 0)
            starts[start_of(cpu, k / table, kept->copy[k]) + 1]++;
    for (size_t i = 1; i < lhi_cpu_n_starts(cpu); i++)
        starts[i] += starts[i - 1];
    for (uint32_t q = 0; q <= cpu->spread.near; q++)
        kept->copy_first[q] = starts[q * each];
    for (size_t k = 0; k < all; k++)
        if (kept->copy[k] >= 0)
            kept->copy[k] = starts[start_of(cpu, k / table, kept->copy[k])]++;
}

static void exchange(lhi_cpu *cpu, lhi_group *group, const void *out,
                     const size_t *gives, void *in, const size_t *gets)
{
    if (cpu->met == LH_OK)
        cpu->met =
            lhi_group_all_to_all(group, out, gives, in, gets, &cpu->met_err);
}

/* --- between nodes -----------------------------------------------------------
 */

/* Checks whether a row has an expert on the node. */
static bool goes_to(const lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t row,
                    uint32_t node)
{
    for (uint32_t j = 0; j < cpu->chosen; j++)
        if (is_on(cpu, kept, row * cpu->chosen + j, node))
            return true;
    return false;
}

/* Checks whether a relayed row has copies for this node. */
static bool has_copies(const lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t row)
{
    for (uint32_t j = 0; j < cpu->chosen; j++)
        if (kept->copy[row * cpu->chosen + j] >= 0)
            return true;
    return false;
}

/* Computes the bytes of rows of `width` floats sent to each relay. */
static void count_out(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                      size_t width, size_t *gives)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    memset(gives, 0, cpu->n_expert * sizeof *gives);
    for (uint32_t i = 0; i < cpu->n_expert; i++)
        for (size_t row = 0; d->is_relay[i] && row < cpu->routes_r; row++)
            if (goes_to(cpu, kept, row, d->node_of[i]))
                gives[i] += width * sizeof(float);
}

/* Computes the bytes that this relay receives from each source. */
static void count_in(const lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t width,
                     size_t *gets)
{
    memset(gets, 0, cpu->n_expert * sizeof *gets);
    for (size_t k = 0; k < (size_t)cpu->spread.sources * cpu->most_r; k++)
        if (has_copies(cpu, kept, k))
            gets[cpu->nodes->sources[k / cpu->most_r]] += width * sizeof(float);
}

/* Context of the callback that runs once the headers have arrived. */
typedef struct telling {
    lhi_cpu *cpu;
    lhi_cpu_kept *kept;
} telling;

/* Returns the receive buffer for all ranks' headers. */
static int32_t *words_in(const lhi_cpu *cpu)
{
    return cpu->nodes->words + (size_t)cpu->n_expert * cpu->here +
           2 * cpu->spread.nodes * lhi_cpu_table(cpu);
}

/* Reads the headers and computes the rows to receive. */
static void hear_words(void *context)
{
    const telling *t = context;
    read_words(t->cpu, t->kept, words_in(t->cpu),
               lhi_cpu_counts_of(t->cpu, t->cpu->slice));
    place_copies(t->cpu, t->kept);
    count_in(t->cpu, t->kept, t->cpu->h, t->cpu->sizes + 3 * t->cpu->n_expert);
}

/* Sends rows to the relays. `tells`: with headers, since relays do not have the
 * routing yet. */
static void send_far(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *x,
                     bool tells)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    size_t h = cpu->h, n = cpu->n_expert;
    size_t *gives = cpu->sizes + 2 * n, *gets = gives + n;
    telling t = {cpu, kept};
    float *to = d->sent;
    for (uint32_t i = 0; i < cpu->n_expert; i++)
        for (size_t row = 0; d->is_relay[i] && row < cpu->routes_r; row++)
            if (goes_to(cpu, kept, row, d->node_of[i])) {
                memcpy(to, x + row * h, h * sizeof *x);
                to += h;
            }
    count_out(cpu, kept, h, gives);
    if (!tells) {
        count_in(cpu, kept, h, gets);
        exchange(cpu, cpu->expert_group, d->sent, gives, d->relayed, gets);
        return;
    }
    if (cpu->met != LH_OK)
        return;
    write_words(cpu, kept, cpu->sizes, cpu->sizes + n);
    const lhi_group_bytes words = {d->words, cpu->sizes, false, words_in(cpu),
                                   cpu->sizes + n};
    const lhi_group_bytes rows = {d->sent, gives, false, d->relayed, gets};
    cpu->met = lhi_group_all_to_all_told(cpu->expert_group, &words, &rows,
                                         hear_words, &t, &cpu->met_err);
}

/* --- within the node ---------------------------------------------------------
 */

/* Counts the rows that this rank's experts receive from members before
 * `member`. */
static size_t rows_before(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                          uint32_t member)
{
    const int32_t *first = lhi_cpu_own_from(cpu, kept);
    return (size_t)(first[member * cpu->here] - first[0]);
}

/* Counts the rows that this rank's experts receive from a member. */
static size_t rows_from(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                        uint32_t member)
{
    return rows_before(cpu, kept, member + 1) - rows_before(cpu, kept, member);
}

/* Exchanges copies, or on the way back their outputs, between relays and the
 * ranks that have the experts. */
static void exchange_near(lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t width,
                          float *by_relay, bool back)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    uint32_t n = cpu->spread.near;
    size_t *relays = cpu->sizes, *here = cpu->sizes + cpu->n_expert;
    memset(here, 0, n * sizeof *here);
    for (uint32_t q = 0; q < n; q++)
        relays[q] = (size_t)(kept->copy_first[q + 1] - kept->copy_first[q]) *
                    width * sizeof(float);
    for (uint32_t i = 0; i < cpu->n_expert; i++)
        here[index_of(d->near, d->relays[i])] +=
            rows_from(cpu, kept, i) * width * sizeof(float);
    if (n == 1)
        memcpy(back ? d->copies : by_relay, back ? by_relay : d->copies,
               *here);
    else if (back)
        exchange(cpu, cpu->near_group, by_relay, here, d->copies, relays);
    else
        exchange(cpu, cpu->near_group, d->copies, relays, by_relay, here);
}

/* Lets the second group's traffic overlap with the first's, so that copies are
 * forwarded while others still arrive. */
static void go_beside(lhi_group *second, const lhi_group *first)
{
    if (second && first)
        lhi_group_go_beside(second, first);
}

/* Reorders rows from relay order to rank order, or back. */
static void reorder(const lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t width,
                    float *by_relay, float *by_rank, bool back)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    for (uint32_t q = 0; q < cpu->spread.near; q++)
        for (uint32_t i = 0; i < cpu->n_expert; i++) {
            if (d->relays[i] != d->near[q])
                continue;
            size_t n = rows_from(cpu, kept, i) * width;
            float *place = by_rank + rows_before(cpu, kept, i) * width;
            memcpy(back ? by_relay : place, back ? place : by_relay,
                   n * sizeof *place);
            by_relay += n;
        }
}

void lhi_cpu_send_by_nodes(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *x,
                           bool shares, float *in, float *room)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    size_t h = cpu->h, width = h + shares;
    send_far(cpu, kept, x, !shares);
    if (cpu->met != LH_OK)
        return;
    const float *from = d->relayed;
    for (size_t k = 0; k < (size_t)cpu->spread.sources * cpu->most_r; k++) {
        for (size_t i = k * cpu->chosen; i < (k + 1) * cpu->chosen; i++) {
            if (kept->copy[i] < 0)
                continue;
            float *to = d->copies + (size_t)kept->copy[i] * width;
            memcpy(to, from, h * sizeof *to);
            if (shares)
                to[h] = kept->copy_shares[i];
        }
        from += has_copies(cpu, kept, k) ? h : 0;
    }
    go_beside(cpu->near_group, cpu->expert_group);
    exchange_near(cpu, kept, width, room, false);
    if (cpu->met == LH_OK)
        reorder(cpu, kept, width, room, in, false);
}

/* Sums each row's copies. Outputs are multiplied by their routing weights;
 * gradients carry the routing weights' gradients along. */
static void add_copies(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                       bool gradients, size_t width)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    size_t h = cpu->h, each = h + gradients;
    float *to = d->relayed;
    for (size_t k = 0; k < (size_t)cpu->spread.sources * cpu->most_r; k++) {
        if (!has_copies(cpu, kept, k))
            continue;
        memset(to, 0, width * sizeof *to);
        for (uint32_t j = 0; j < cpu->chosen; j++) {
            size_t choice = k * cpu->chosen + j;
            if (kept->copy[choice] < 0)
                continue;
            const float *x = d->copies + (size_t)kept->copy[choice] * each;
            float by = gradients ? 1 : kept->copy_shares[choice];
            for (size_t i = 0; i < h; i++)
                to[i] += by * x[i];
            if (gradients)
                to[h + j] = x[h];
        }
        to += width;
    }
}

/* --- return path
 * -------------------------------------------------------------------- */

/* Copies the routing weights' gradients from the returned rows to
 * cpu->d_routing_weights. */
static void take_worth(lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    const float *from = d->sent;
    for (uint32_t i = 0; i < cpu->n_expert; i++)
        for (size_t row = 0; d->is_relay[i] && row < cpu->routes_r; row++) {
            if (!goes_to(cpu, kept, row, d->node_of[i]))
                continue;
            for (uint32_t j = 0; j < cpu->chosen; j++) {
                size_t choice = row * cpu->chosen + j;
                if (is_on(cpu, kept, choice, d->node_of[i]))
                    cpu->d_shares[kept->place[choice]] = from[cpu->h + j];
            }
            from += (size_t)cpu->h + cpu->chosen;
        }
}

void lhi_cpu_return_by_nodes(lhi_cpu *cpu, const lhi_cpu_kept *kept,
                             float *made, bool gradients)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    size_t width = (size_t)cpu->h + (gradients ? cpu->chosen : 0);
    size_t *gives = cpu->sizes, *gets = gives + cpu->n_expert;
    reorder(cpu, kept, (size_t)cpu->h + gradients, cpu->routed, made, true);
    exchange_near(cpu, kept, (size_t)cpu->h + gradients, cpu->routed, true);
    if (cpu->met != LH_OK)
        return;
    add_copies(cpu, kept, gradients, width);
    count_out(cpu, kept, width, gets);
    count_in(cpu, kept, width, gives);
    go_beside(cpu->expert_group, cpu->near_group);
    exchange(cpu, cpu->expert_group, d->relayed, gives, d->sent, gets);
    if (gradients && cpu->met == LH_OK)
        take_worth(cpu, kept);
}

void lhi_cpu_add_from_nodes(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                            bool gradients, float *x)
{
    const struct lhi_cpu_nodes *d = cpu->nodes;
    const float *from = d->sent;
    for (uint32_t i = 0; i < cpu->n_expert; i++)
        for (size_t row = 0; d->is_relay[i] && row < cpu->routes_r; row++)
            if (goes_to(cpu, kept, row, d->node_of[i])) {
                cpu->k->add(x + row * cpu->h, from, cpu->h);
                from += (size_t)cpu->h + (gradients ? cpu->chosen : 0);
            }
}
