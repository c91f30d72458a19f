/* SPDX-License-Identifier: Apache-2.0 */
/* Counts exchanges per layer between ranks with different experts, as plans do;
 * also checks that node forwarding overlaps with receiving. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "moe_models.h"
#include "small_llama.h"

#include "runtime/transport/transport.h"

enum { MOST = 8, NEAR_NS = 200 };

/* Numbers of ranks, expert groups, ranks per expert, ranks per node; expected
 * collectives per layer in F, in D, and additional ones in D with full
 * recomputation. */
typedef struct row {
    uint32_t ranks, expert, cut, per_node;
    uint32_t forward, backward, again;
} row;

static const row rows[] = {
    {2, 2, 1, 0, 2, 2, 1},
    /* also within nodes */
    {4, 4, 1, 2, 4, 4, 2},
    /* ranks that share an expert gather rows and scatter sums */
    {4, 2, 2, 0, 4, 4, 2},
    {2, 1, 2, 0, 2, 2, 1},
    {8, 4, 2, 2, 6, 6, 3},
};

/* The ranks' devices and their measured link times. */
typedef struct team {
    const row *row;
    small s;     /* a device per rank */
    bool linked; /* with link times in F, see below */
    uint64_t calls[MOST][2];
    int64_t far_ns[MOST], near_ns[MOST];
} team;

static lh_status make(lhi_net *net, uint32_t n, uint32_t mine,
                      const uint32_t *ranks, uint64_t tag, lhi_group **out,
                      lh_error *err)
{
    const lhi_group_options o = {n, mine, ranks, tag << 32, NULL};
    return n > 1 ? lhi_group_make(net, &o, out, err) : LH_OK;
}

static uint64_t calls_of(const lhi_device_groups *g)
{
    const lhi_group *all[] = {g->expert, g->expert_tensor,
                              g->intra_node_expert};
    uint64_t n = 0;
    for (uint32_t i = 0; i < 3; i++)
        n += all[i] ? lhi_group_count_calls(all[i]) : 0;
    return n;
}

static lh_status pass(team *t, uint32_t rank, lh_pass_kind kind, lh_error *err)
{
    lhi_device *d = t->s.devices[rank];
    const lh_pass p = {.kind = (uint8_t)kind, .n_parts = 1};
    return d->ops->run(d, &p, NULL, NULL, 0, NULL, err);
}

static lh_status steps(team *t, uint32_t rank, const lhi_device_groups *g,
                       lh_error *err)
{
    lhi_device *d = t->s.devices[rank];
    d->ops->join(d, g);
    LHI_TRY(d->ops->begin(d, 0, LHI_STEP_TRAIN, err));
    LHI_TRY(pass(t, rank, LH_F, err));
    t->calls[rank][0] = calls_of(g);
    if (t->linked) {
        t->far_ns[rank] = lhi_group_emulated_ns(g->expert);
        t->near_ns[rank] = lhi_group_emulated_ns(g->intra_node_expert);
    }
    LHI_TRY(pass(t, rank, LH_D, err));
    LHI_TRY(pass(t, rank, LH_W, err));
    t->calls[rank][1] = calls_of(g) - t->calls[rank][0];
    return LH_OK;
}

/* Ranks that share an expert are adjacent. */
static lh_status rank_main(lhi_net *net, void *context, char **result,
                           size_t *size, lh_error *err)
{
    team *t = context;
    const row *r = t->row;
    uint32_t me = lhi_net_rank(net), have[MOST], parts[MOST], near[MOST];
    lhi_group *made[3] = {NULL};
    (void)result, (void)size;
    for (uint32_t i = 0; i < r->expert; i++)
        have[i] = i * r->cut + me % r->cut;
    for (uint32_t i = 0; i < r->cut; i++)
        parts[i] = me / r->cut * r->cut + i;
    for (uint32_t i = 0; i < r->per_node; i++)
        near[i] = (me / r->cut / r->per_node * r->per_node + i) * r->cut +
                  me % r->cut;
    lh_status status =
        make(net, r->expert, me / r->cut, have, 1, &made[0], err);
    if (status == LH_OK)
        status = make(net, r->cut, me % r->cut, parts, 2, &made[1], err);
    if (status == LH_OK && r->per_node)
        status = make(net, r->per_node, me / r->cut % r->per_node, near, 3,
                      &made[2], err);
    const lhi_device_groups g = {.expert = made[0],
                                 .expert_tensor = made[1],
                                 .intra_node_expert = made[2]};
    if (status == LH_OK && t->linked) {
        lhi_group_set_link(g.expert, 0, 1);
        lhi_group_set_link(g.intra_node_expert, 0, NEAR_NS);
    }
    if (status == LH_OK)
        status = steps(t, me, &g, err);
    for (uint32_t i = 0; i < 3; i++)
        lhi_group_free(made[i]);
    return status;
}

static void open_devices(team *t, const uint32_t *again)
{
    const row *r = t->row;
    const uint32_t mine = 0, nodes[] = {0, 0, 1, 1};
    small *s = &t->s;
    lh_error err;
    s->firsts[1] = s->model.layers;
    s->n_devices = r->ranks;
    for (uint32_t i = 0; i < r->ranks; i++) {
        const lhi_cpu_options o = {.model = &s->model,
                                   .n_chunks = 1,
                                   .first_layers = s->firsts,
                                   .recompute = again,
                                   .n_mine = 1,
                                   .mine = &mine,
                                   .microbatch = s->microbatch,
                                   .sequence = s->sequence,
                                   .n_microbatches = 1,
                                   .replica = i,
                                   .n_replicas = r->ranks,
                                   .n_expert = r->expert,
                                   .expert = i / r->cut,
                                   .expert_nodes = r->per_node ? nodes : NULL,
                                   .n_expert_tensor = r->cut,
                                   .expert_tensor = i % r->cut,
                                   .seed = 3,
                                   .data = s->data};
        lh_status status = lhi_device_cpu(&o, &s->devices[i], &err);
        if (status == LH_EUNSUPPORTED) {
            fprintf(stderr, "SKIPPED: %s\n", err.text);
            exit(77);
        }
        CHECK_OK(status, err);
    }
}

static void begin(team *t, const uint32_t *again)
{
    lh_error err;
    t->s = small_sizes();
    t->s.model = mixtral_of(t->s.model);
    t->s.model.experts = 8;
    t->s.model.layers = 2;
    small_text(t->s.path, sizeof t->s.path);
    CHECK_OK(lhi_data_open(&(lhi_data_options){.path = t->s.path,
                                               .kind = LHI_DATA_BYTES,
                                               .vocab = t->s.model.vocab,
                                               .sequence = t->s.sequence,
                                               .seed = 7},
                           &t->s.data, &err),
             err);
    open_devices(t, again);
}

static void run(team *t)
{
    lhi_rank_result results[MOST] = {{NULL, 0}};
    lh_error err;
    CHECK_OK(
        lhi_inproc_run(t->row->ranks, 0, NULL, rank_main, t, results, &err),
        err);
    small_close(&t->s);
}

static void as_often_as_planned(void)
{
    static const uint32_t all[] = {LH_PART_ALL, LH_PART_ALL};
    for (uint32_t i = 0; i < 2 * (sizeof rows / sizeof *rows); i++) {
        const row *r = &rows[i / 2];
        team t = {.row = r};
        begin(&t, i % 2 ? all : NULL);
        run(&t);
        for (uint32_t rank = 0; rank < r->ranks; rank++) {
            CHECK_INT(t.calls[rank][0], 2 * r->forward);
            CHECK_INT(t.calls[rank][1],
                      2 * (r->backward + (i % 2 ? r->again : 0)));
        }
    }
}

/* Forwarding within a node overlaps with receiving from other nodes, and vice
 * versa on the return path. With the slower links inside nodes, two exchanges
 * each take only the intra-node time in total. */
static void near_goes_beside_far(void)
{
    team t = {.row = &rows[1], .linked = true};
    begin(&t, NULL);
    run(&t);
    for (uint32_t rank = 0; rank < t.row->ranks; rank++) {
        const int64_t rows_ns =
            2 * NEAR_NS * (int64_t)(t.s.model.hidden * sizeof(float));
        int64_t all_ns = t.far_ns[rank] + t.near_ns[rank];
        CHECK(t.far_ns[rank] > 0 && t.far_ns[rank] < rows_ns);
        CHECK_MSG(all_ns > 0 && all_ns % rows_ns == 0,
                  "rank %u: %lld and %lld ns", rank, (long long)t.near_ns[rank],
                  (long long)t.far_ns[rank]);
    }
}

int main(void)
{
    RUN(as_often_as_planned);
    RUN(near_goes_beside_far);
    return test_summary();
}
