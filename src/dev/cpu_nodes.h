/* SPDX-License-Identifier: Apache-2.0 */
/* Experts on several nodes, to each of which a row goes once (DeepEP:
 * arXiv:2412.19437, section 3.2.2). A rank sends it to one rank of each node that
 * has some of its experts, its relay there: the one that has the same place
 * among the node's, which is itself on its own. A relay makes copies, one for
 * each of these experts, hands them on within the node, adds up what comes back
 * and returns one row.
 *
 * What comes to experts lies as without (cpu_expert_ranks.c), so products are
 * the same to the last bit; what they make is added up node by node. */
#ifndef LHI_CPU_NODES_H
#define LHI_CPU_NODES_H

#include "dev/cpu_experts.h"

/* By member of the group that has all experts, unless it says otherwise. */
struct lhi_cpu_nodes {
    uint32_t *node_of;
    uint32_t *near;    /* [spread.near] members on this node */
    uint32_t *sources; /* [spread.sources] whose relay here this rank is */
    uint32_t *relays;  /* here */
    bool *is_relay;    /* of this rank's rows, on its own node */
    int32_t *words;    /* what routes say: to all, then from all */
    int32_t *starts;   /* [near * sources * here + 1] */
    float *sent;       /* [spread.nodes * most_r][h + chosen] to, and from, relays */
    float *relayed;    /* [sources * most_r][h + chosen] the other end of that */
    float *copies;     /* [...][h + 1], by who has their experts here */
};

/* As of these options; all 0: a copy goes to each expert from where the row
 * is (cpu_relays.c). */
lhi_cpu_spread lhi_cpu_spread_of(const lhi_cpu_options *options);
/* Of n members on these nodes, the relay of one of them on a node. */
uint32_t lhi_cpu_relay_of(const uint32_t *nodes, uint32_t n, uint32_t member,
                          uint32_t node);
/* Room for it, and for what a layer keeps beside its routes; false: no
 * memory. */
bool lhi_cpu_make_nodes(lhi_cpu *cpu, const lhi_cpu_options *options);
bool lhi_cpu_make_copies(const lhi_cpu *cpu, lhi_arena *mem,
                         lhi_cpu_kept *kept);

/* Choices of one rank's rows. */
static inline size_t lhi_cpu_table(const lhi_cpu *cpu)
{
    return (size_t)cpu->most_r * cpu->chosen;
}
/* Of words and starts. With each table of choices goes one of shares. */
static inline size_t lhi_cpu_n_words(const lhi_cpu *cpu)
{
    return 2 * ((size_t)cpu->n_expert * cpu->here +
                (cpu->spread.nodes + cpu->spread.sources) * lhi_cpu_table(cpu));
}
static inline size_t lhi_cpu_n_starts(const lhi_cpu *cpu)
{
    return (size_t)cpu->spread.near * cpu->spread.sources * cpu->here + 1;
}
/* A row has as many copies as it has experts on this node, at most. */
static inline size_t lhi_cpu_n_copies(const lhi_cpu *cpu)
{
    size_t experts = (size_t)cpu->spread.near * cpu->here;
    size_t each = cpu->most_r * (cpu->chosen < experts ? cpu->chosen : experts);
    size_t room = cpu->microbatch * experts * cpu->capacity;
    return cpu->spread.sources * (room && room < each ? room : each);
}

/* Rows of x [routes_r][h] go to their experts: to `in`, rank by rank; `room` is as
 * large. First without shares and with the routes, from which numbers of rows
 * come, lhi_cpu_counts_of() this rank's parts and between these in kept->from,
 * and what relays need; then each with its share behind it. */
void lhi_cpu_send_by_nodes(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *x,
                           bool shares, float *in, float *room);
/* What experts have made of these rows goes back: weighed by shares; or
 * gradients, each with what the result is worth, which comes to cpu->d_shares.
 */
void lhi_cpu_return_by_nodes(lhi_cpu *cpu, const lhi_cpu_kept *kept,
                             float *made, bool gradients);
/* Adds what has come back to x [routes_r][h]. */
void lhi_cpu_add_from_nodes(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                            bool gradients, float *x);

#endif
