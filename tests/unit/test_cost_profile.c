/* SPDX-License-Identifier: Apache-2.0 */
/* Measured times and memory replace estimates. */
#include "model/paths.h"
#include "test_cost.h"

/* A fixture with a measured profile. */
typedef struct measured {
    fixture f;
    lh_profile_entry entries[8];
    lh_profile_link links[2];
    lh_profile profile;
} measured;

static lh_profile_entry layer(uint32_t micro_batch, int64_t f_ns)
{
    return (lh_profile_entry){.kind = LH_PROFILE_LAYER,
                              .tensor = 8,
                              .context = 1,
                              .expert = 1,
                              .micro_batch = micro_batch,
                              .sequence = 8192,
                              .communication = true,
                              .f_ns = f_ns,
                              .d_ns = 2 * f_ns,
                              .w_ns = f_ns,
                              .activation_bytes = 1000 * micro_batch,
                              .static_bytes = LH_NOT_MEASURED};
}

static void measured_init(measured *m)
{
    fixture_init(&m->f, "llama3-70b");
    m->f.layout.tensor = 8;
    m->f.slice.n_layers = 3;
    m->entries[0] = layer(1, 4000000);
    m->entries[1] = layer(4, 13000000);
    m->profile = (lh_profile){.name = "p.yaml",
                              .n_entries = 2,
                              .entries = m->entries,
                              .links = m->links};
    m->f.job.profile = &m->profile;
}

static void profile_wins(void)
{
    measured m;

    measured_init(&m);
    COST(&m.f);
    CHECK_INT(m.f.cost.time_source, LH_COST_PROFILE);
    CHECK_INT(m.f.cost.memory_source, LH_COST_PROFILE);
    CHECK_INT(m.f.cost.f.total_ns, 12000000);
    CHECK_INT(m.f.cost.d.total_ns, 24000000);
    CHECK_INT(m.f.cost.w.total_ns, 12000000);
    CHECK_INT(m.f.cost.activation_bytes, 3000);
    CHECK(m.f.cost.f.flops > 0);
    /* Also over a specified efficiency. */
    m.f.sites[0].gpu.efficiency = 0.5;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 12000000);
    m.f.options.ignore_profile = true;
    COST(&m.f);
    CHECK_INT(m.f.cost.time_source, LH_COST_EFFICIENCY);
}

static void other_models_are_left_out(void)
{
    measured m;

    measured_init(&m);
    m.entries[0].model = "llama3-8b";
    m.entries[1] = layer(1, 5000000);
    m.entries[1].model = "llama3-70b";
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 15000000);
    m.entries[1].model = "llama3-405b";
    COST(&m.f);
    CHECK_INT(m.f.cost.time_source, LH_COST_MODEL);
}

static void between_two_shapes(void)
{
    measured m;

    measured_init(&m);
    m.f.layout.micro_batch = 2;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 3 * 7000000);
    CHECK_INT(m.f.cost.activation_bytes, 3 * 2000);
    CHECK_INT(m.f.cost.time_source, LH_COST_PROFILE);
    /* Not if one entry was measured with communication and the other without.
     */
    m.entries[1].communication = false;
    CHECK_INT(fixture_cost(&m.f), LH_EUNSUPPORTED);
}

static void other_shapes_are_refused(void)
{
    measured m;

    measured_init(&m);
    m.f.layout.micro_batch = 8;
    CHECK_INT(fixture_cost(&m.f), LH_EUNSUPPORTED);
    CHECK_HAS(m.f.err.text, "profile p.yaml has no layer on h100-sxm with "
                            "tensor 8");
    CHECK_HAS(m.f.err.text, "micro_batch 8");
    m.f.layout.micro_batch = 1;
    m.f.job.training.sequence = 4096;
    CHECK_INT(fixture_cost(&m.f), LH_EUNSUPPORTED);
    m.f.options.estimate_missing = true;
    COST(&m.f);
    CHECK_INT(m.f.cost.time_source, LH_COST_MODEL);
    /* Measurements on another GPU do not apply. */
    m.f.options.estimate_missing = false;
    m.f.job.training.sequence = 8192;
    m.entries[0].gpu = m.entries[1].gpu = "a100-80g";
    CHECK_INT(fixture_cost(&m.f), LH_EUNSUPPORTED);
    m.entries[0].gpu = "h100-sxm";
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 12000000);
}

static void kinds_not_measured_are_estimated(void)
{
    measured m;
    lh_cost layers, head;

    measured_init(&m);
    COST(&m.f);
    layers = m.f.cost;
    m.f.slice.head = true;
    COST(&m.f);
    CHECK_INT(m.f.cost.time_source, LH_COST_MIXED);
    CHECK_INT(m.f.cost.memory_source, LH_COST_MIXED);
    head = m.f.cost;
    m.f.slice = (lh_cost_layer_range){.head = true};
    COST(&m.f);
    CHECK_INT(m.f.cost.time_source, LH_COST_MODEL);
    CHECK_NEAR((double)(layers.f.total_ns + m.f.cost.f.total_ns),
               (double)head.f.total_ns, 1);
    m.entries[2] = layer(1, 500000);
    m.entries[2].kind = LH_PROFILE_HEAD;
    m.profile.n_entries = 3;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 500000);
}

static void communication_is_added(void)
{
    measured m;

    measured_init(&m);
    m.entries[0].communication = false;
    COST(&m.f);
    CHECK(m.f.cost.f.communication_ns > 0);
    CHECK_NEAR((double)m.f.cost.f.total_ns,
               12e6 + (double)m.f.cost.f.communication_ns, 1);
    CHECK_NEAR((double)m.f.cost.d.total_ns,
               24e6 + (double)m.f.cost.d.communication_ns, 1);
    CHECK_INT(m.f.cost.w.total_ns, 12000000);
}

static void recomputation_on_top(void)
{
    measured m;

    measured_init(&m);
    m.f.job.training.recompute = LH_RECOMPUTE_FULL;
    COST(&m.f);
    CHECK_INT(m.f.cost.d.total_ns, 24000000 + 12000000);
    /* Activations with recomputation were not measured. */
    CHECK_INT(m.f.cost.memory_source, LH_COST_MODEL);
    CHECK_INT(m.f.cost.activation_bytes, 3LL * 8192 * 8192 * 2 / 8);
    m.f.job.training.recompute = LH_RECOMPUTE_SELECTIVE;
    COST(&m.f);
    CHECK(m.f.cost.d.total_ns > 24000000 && m.f.cost.d.total_ns < 30000000);
    /* Measured with recomputation: used directly. */
    m.entries[2] = layer(1, 4000000);
    m.entries[2].recompute = LH_RECOMPUTE_FULL;
    m.entries[2].d_ns = 11000000;
    m.profile.n_entries = 3;
    m.f.job.training.recompute = LH_RECOMPUTE_FULL;
    COST(&m.f);
    CHECK_INT(m.f.cost.d.total_ns, 33000000);
    CHECK_INT(m.f.cost.activation_bytes, 3000);
}

/* An entry without the flag matches either setting. */
static void sequence_parallelism_is_a_condition(void)
{
    measured m;

    measured_init(&m);
    COST(&m.f);
    const int64_t unsaid_ns = m.f.cost.f.total_ns;
    m.f.job.framework.no_sequence_parallel = true;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, unsaid_ns);
    m.entries[2] = layer(1, 5000000);
    m.entries[2].no_sequence_parallel = true;
    m.profile.n_entries = 3;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 15000000);
    m.f.job.framework.no_sequence_parallel = false;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, unsaid_ns);
    m.entries[0] = m.entries[1] = m.entries[2];
    CHECK_INT(fixture_cost(&m.f), LH_EUNSUPPORTED);
}

static void whole_chunks(void)
{
    measured m;

    measured_init(&m);
    m.entries[2] = layer(1, 99000000);
    m.entries[2].kind = LH_PROFILE_CHUNK;
    m.entries[2].chunk = 1;
    m.entries[2].n_chunks = 4;
    m.entries[2].static_bytes = 5000000000;
    m.profile.n_entries = 3;
    m.f.slice.chunk = 1;
    m.f.slice.n_chunks = 4;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 99000000);
    CHECK_INT(m.f.cost.time_source, LH_COST_PROFILE);
    CHECK_INT(m.f.cost.static_bytes,
              5000000000 + m.f.cost.buffer_bytes + m.f.cost.workspace_bytes);
    m.entries[2].static_bytes = 0; /* measured as well */
    COST(&m.f);
    CHECK_INT(m.f.cost.static_bytes,
              m.f.cost.buffer_bytes + m.f.cost.workspace_bytes);
    /* Communication that was not measured is estimated and added. */
    m.entries[2].communication = false;
    m.f.options.ignore_profile = true;
    COST(&m.f);
    const lh_cost estimate = m.f.cost;
    m.f.options.ignore_profile = false;
    COST(&m.f);
    CHECK(estimate.f.communication_ns > 0);
    CHECK_INT(m.f.cost.f.communication_ns, estimate.f.communication_ns);
    CHECK_INT(m.f.cost.d.communication_ns, estimate.d.communication_ns);
    CHECK_NEAR((double)m.f.cost.f.total_ns,
               99e6 + (double)estimate.f.communication_ns, 1);
    CHECK_NEAR((double)m.f.cost.d.total_ns,
               198e6 + (double)estimate.d.communication_ns, 1);
    CHECK_INT(m.f.cost.w.total_ns, 99000000);
    m.f.slice.chunk = 2;
    CHECK_INT(fixture_cost(&m.f), LH_EUNSUPPORTED);
    CHECK_HAS(m.f.err.text, "no chunk");
    /* With a different number of chunks, layer entries apply again. */
    m.f.slice.n_chunks = 8;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 12000000);
}

/* A measured chunk of three layers whose activations are all recomputed. */
static void chunks_of_no_activations(void)
{
    measured m;

    measured_init(&m);
    m.entries[0] = layer(1, 12000000);
    m.entries[0].kind = LH_PROFILE_CHUNK;
    m.entries[0].n_chunks = 1;
    m.entries[0].activation_bytes = 0;
    m.profile.n_entries = 1;
    m.f.slice.n_chunks = 1;
    COST(&m.f);
    CHECK_INT(m.f.cost.activation_bytes, 0);
    CHECK_INT(m.f.cost.weight_input_bytes, 0);
    CHECK_INT(m.f.cost.memory_source, LH_COST_PROFILE);
}

/* Recomputation that a chunk was not measured with costs as much as that of its
 * layers, each measured. */
static void chunks_recompute_all_their_layers(void)
{
    static const lh_recompute kinds[] = {LH_RECOMPUTE_SELECTIVE,
                                         LH_RECOMPUTE_FULL};
    measured m;

    for (int i = 0; i < 2; i++) {
        measured_init(&m);
        m.f.job.training.recompute = kinds[i];
        COST(&m.f);
        const int64_t by_layer_ns = m.f.cost.d.total_ns;
        m.entries[0] = layer(1, 3 * 4000000);
        m.entries[0].kind = LH_PROFILE_CHUNK;
        m.entries[0].n_chunks = 1;
        m.profile.n_entries = 1;
        m.f.slice.n_chunks = 1;
        COST(&m.f);
        CHECK(m.f.cost.d.total_ns > 24000000);
        CHECK_INT(m.f.cost.d.total_ns, by_layer_ns);
    }
}

static void measured_links(void)
{
    measured m;
    lh_cost_group group = {8, 8, 1024, 0, 1, 0, NULL, 0};
    lh_cost_hop hop = {0, 1, 0, 0, 0, 0, 0};
    lh_cost_message message;
    lh_cost_path path;

    measured_init(&m);
    m.links[0] = (lh_profile_link){.path = LH_PATH_NODE,
                                   .site = "west",
                                   .alpha_ns = 1234,
                                   .beta_ns_per_byte = 0.01};
    m.links[1] = (lh_profile_link){.path = LH_PATH_WAN,
                                   .from = "west",
                                   .to = "east",
                                   .alpha_ns = 9000000,
                                   .beta_ns_per_byte = 0.005};
    m.profile.n_links = 2;
    CHECK_OK(lh_cost_group_path(&m.f.job, &group, NULL, &path, &m.f.err),
             m.f.err);
    CHECK(path.measured);
    CHECK_NEAR(path.bytes_per_s, 100e9, 1);
    CHECK_NEAR(path.latency_ns, 1234, 0);
    group.datacenter = 1;
    CHECK_OK(lh_cost_group_path(&m.f.job, &group, NULL, &path, &m.f.err),
             m.f.err);
    CHECK(!path.measured);
    CHECK_OK(lhi_cost_hop_message(&m.f.job, &m.f.layout, &hop, NULL, &message,
                                  &m.f.err),
             m.f.err);
    CHECK(message.measured);
    CHECK_INT(message.latency_ns, 9000000);
    CHECK_NEAR((double)message.transfer_ns, (double)message.bytes * 0.005, 1);
}

/* Measured with the default expert partition, which layouts without that
 * setting use. */
static void experts_cut_otherwise(void)
{
    measured m;

    measured_init(&m);
    m.f.job.model = lh_model_preset("mixtral-8x7b");
    m.f.layout.data = m.f.layout.expert = 8;
    m.entries[0].kind = LH_PROFILE_MOE_LAYER;
    m.entries[0].expert = 8;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 12000000);
    m.f.layout.expert_tensor = 1;
    COST(&m.f);
    CHECK_INT(m.f.cost.f.total_ns, 12000000);
    m.f.layout.expert_tensor = 2;
    CHECK_INT(fixture_cost(&m.f), LH_EUNSUPPORTED);
    CHECK_HAS(m.f.err.text, "cut over 2 GPUs");
    m.f.options.estimate_missing = true;
    COST(&m.f);
    CHECK_INT(m.f.cost.time_source, LH_COST_MODEL);
}

int main(void)
{
    RUN(profile_wins);
    RUN(other_models_are_left_out);
    RUN(between_two_shapes);
    RUN(other_shapes_are_refused);
    RUN(kinds_not_measured_are_estimated);
    RUN(communication_is_added);
    RUN(recomputation_on_top);
    RUN(sequence_parallelism_is_a_condition);
    RUN(whole_chunks);
    RUN(chunks_of_no_activations);
    RUN(chunks_recompute_all_their_layers);
    RUN(measured_links);
    RUN(experts_cut_otherwise);
    return test_summary();
}
