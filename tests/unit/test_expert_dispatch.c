/* SPDX-License-Identifier: Apache-2.0 */
/* Time of token dispatchers, and of cuDNN's attention, by hand. */
#include "test_cost.h"

#include <math.h>

enum { T = 8192, HIDDEN = 2048, COPIES = 8, EXPERTS = 128 };

static lh_cost cost_with(fixture *f, lh_dispatcher dispatcher)
{
    f->job.training.dispatcher = dispatcher;
    COST(f);
    return f->cost;
}

static void init(fixture *f)
{
    fixture_init(f, "qwen3-30b-a3b");
    f->layout.expert = f->layout.data = 8;
    for (int i = 0; i < 2; i++)
        f->sites[i].node_link.latency_ns = 0;
}

static double bytes_ns(double bytes)
{
    return bytes / (3350 * lh_cost_defaults()->memory_efficiency);
}

/* An all-to-all sends every copy, 7/8 of them to other GPUs. DeepEP and
 * HybridEP send one to each GPU with any of a token's experts. An all-gather
 * sends all tokens to the other seven. Each twice. */
static void dispatchers_send_different_copies(void)
{
    static const struct {
        lh_dispatcher dispatcher;
        double copies;
    } rows[] = {
        {LH_DISPATCHER_ALL_TO_ALL, COPIES * 7.0 / 8},
        {LH_DISPATCHER_DEEPEP, 0},
        {LH_DISPATCHER_HYBRIDEP, 0},
        {LH_DISPATCHER_ALL_GATHER, 7},
    };
    double none = 1;
    fixture f;

    init(&f);
    for (int i = 0; i < COPIES; i++) /* all among the other 112 of 128 */
        none *= (EXPERTS * 7.0 / 8 - i) / (EXPERTS - i);
    for (int i = 0; i < 4; i++) {
        lh_cost c = cost_with(&f, rows[i].dispatcher);
        double copies =
            rows[i].copies > 0 ? rows[i].copies : 8 * (1 - none) * 7 / 8;

        CHECK_NEAR((double)c.f.communication_ns,
                   2 * copies * T * HIDDEN * 2 / fixture_node_rate(), 5);
    }
}

/* Only an all-to-all's tokens are sorted by expert and back, in F and in D, and
 * not where each GPU has one expert. */
static void an_all_to_all_sorts_tokens(void)
{
    fixture f;

    init(&f);
    lh_cost sorted = cost_with(&f, LH_DISPATCHER_ALL_TO_ALL);
    lh_cost direct = cost_with(&f, LH_DISPATCHER_DEEPEP);
    double moved = (double)T * COPIES * HIDDEN * 2;

    CHECK_NEAR((double)(sorted.f.memory_ns - direct.f.memory_ns),
               bytes_ns(4 * moved), 2);
    CHECK_NEAR((double)(sorted.d.memory_ns - direct.d.memory_ns),
               bytes_ns(4 * moved), 2);
    CHECK_INT(sorted.w.memory_ns, direct.w.memory_ns);

    lh_model m = *f.job.model;
    m.experts = 8;
    f.job.model = &m;
    sorted = cost_with(&f, LH_DISPATCHER_ALL_TO_ALL);
    direct = cost_with(&f, LH_DISPATCHER_DEEPEP);
    CHECK_INT(sorted.f.memory_ns, direct.f.memory_ns);
}

/* Routing and dispatch take a fixed time in F and D, and each of a GPU's 16
 * experts one in every pass. Fused experts have neither. */
static void dispatch_has_a_fixed_time(void)
{
    const double fixed = lh_cost_defaults()->dispatch_ns;
    const double expert = lh_cost_defaults()->expert_ns;
    lh_cost_constants c = *lh_cost_defaults();
    fixture f;

    init(&f);
    lh_cost with = cost_with(&f, LH_DISPATCHER_DEEPEP);
    c.dispatch_ns = c.expert_ns = 0;
    f.options.constants = &c;
    lh_cost without = cost_with(&f, LH_DISPATCHER_DEEPEP);
    CHECK(fixed > 0 && expert > 0);
    CHECK_NEAR((double)(with.f.kernel_ns - without.f.kernel_ns),
               fixed + 16 * expert, 2);
    CHECK_NEAR((double)(with.d.kernel_ns - without.d.kernel_ns),
               fixed + 16 * expert, 2);
    CHECK_NEAR((double)(with.w.kernel_ns - without.w.kernel_ns), 16 * expert,
               2);

    f.options.constants = NULL;
    f.job.framework.fused_experts = true;
    lh_cost fused = cost_with(&f, LH_DISPATCHER_DEEPEP);
    f.options.constants = &c;
    without = cost_with(&f, LH_DISPATCHER_DEEPEP);
    CHECK_INT(fused.f.kernel_ns, without.f.kernel_ns);
}

/* The time of attention's products in F and D, beyond that at the rate of
 * matrix products. */
static void check_attention(fixture *f, double pairs, double slower,
                            double f_rate, double d_rate)
{
    const double products =
        989.5e3 * 0.87 * lh_cost_defaults()->matmul_efficiency;

    f->job.framework.attention = LH_ATTENTION_FUSED;
    lh_cost fused = cost_with(f, LH_DISPATCHER_DEEPEP);
    f->job.framework.attention = LH_ATTENTION_CUDNN;
    lh_cost cudnn = cost_with(f, LH_DISPATCHER_DEEPEP);
    CHECK_NEAR((double)(cudnn.f.matmul_ns - fused.f.matmul_ns),
               2 * pairs * (slower / (f_rate * 989.5e3) - 1 / products), 5);
    CHECK_NEAR((double)(cudnn.d.matmul_ns - fused.d.matmul_ns),
               5 * pairs * (slower / (d_rate * 989.5e3) - 1 / products), 5);
}

/* A causal mask over a sequence of 8192 tokens. Each pair of tokens takes 2 x
 * 2 x 128 operations in F for each of 32 heads. On A100 there is no measured
 * rate. With heads of 64 values and a window of 128 (gpt-oss), every second
 * layer computes the whole tiles at the window's ends. */
static void attention_has_its_own_rate(void)
{
    fixture f;

    init(&f);
    check_attention(&f, 2.0 * T * 4096 * 32 * 128, (8192 + 900) / 8192.0, 0.70,
                    0.58);
    for (int i = 0; i < 2; i++)
        f.sites[i].gpu = *lh_gpu_preset("a100-80g");
    f.job.framework.attention = LH_ATTENTION_FUSED;
    lh_cost fused = cost_with(&f, LH_DISPATCHER_DEEPEP);
    f.job.framework.attention = LH_ATTENTION_CUDNN;
    lh_cost cudnn = cost_with(&f, LH_DISPATCHER_DEEPEP);
    CHECK_INT(cudnn.f.total_ns, fused.f.total_ns);

    fixture_init(&f, "gpt-oss-120b");
    const double mean = 128 - 128 * 128 / (2 * 8192.0);
    check_attention(&f, 2.0 * T * mean * 64 * 64,
                    (2 * mean + 900) / (2 * mean) * (mean + 128) / mean,
                    0.70 * 0.82, 0.58 * 0.93);
}

/* All tokens arrive at every GPU of an all-gather, also at the hottest one. */
static void an_all_gather_is_never_uneven(void)
{
    fixture f;

    init(&f);
    lh_cost even = cost_with(&f, LH_DISPATCHER_ALL_GATHER);
    f.job.training.imbalance = 2;
    lh_cost hot = cost_with(&f, LH_DISPATCHER_ALL_GATHER);
    CHECK_INT(hot.f.communication_ns, even.f.communication_ns);
    CHECK(hot.f.matmul_ns > even.f.matmul_ns);
    CHECK_NEAR((double)(hot.activation_bytes - even.activation_bytes),
               (double)T * COPIES * (HIDDEN + 3 * 768) * 2, 2);
}

/* Returns the exposed part of two dispatches and combines of `ns` each, F and
 * D together, beside `first`, `both` and `last` of computation. */
static double exposed_ns(double ns, double first, double both, double last,
                         double sms)
{
    return fmax(ns - first, sms * ns) + fmax(2 * ns - both, sms * 2 * ns) +
           fmax(ns - last, sms * ns);
}

/* Computes F and D together of a layer whose all-to-alls take as long as sent
 * over links slower by `slower`. */
static double both_passes_ns(fixture *f, double slower, double *sent)
{
    f->sites[0].node_link.bytes_per_s = FIXTURE_NODE_LINK / slower;
    COST(f);
    *sent =
        (double)T * COPIES * HIDDEN * 2 * 7 / 8 / fixture_node_rate() * slower;
    return (double)(f->cost.f.total_ns + f->cost.d.total_ns);
}

/* The all-to-alls of one microbatch run beside the passes of another, as long
 * as those take, and occupy 20 of 132 multiprocessors. With 8 microbatches and
 * one stage an eighth of the passes is alone. */
static void all_to_alls_hide_behind_another_microbatch(void)
{
    static const double slower[] = {0.01, 1, 3, 100};
    const double sms = 20.0 / 132;
    lh_cost_constants c = *lh_cost_defaults();
    lh_model without = *lh_model_preset("qwen3-30b-a3b");
    double sent, f_ns, d_ns, w_ns;
    fixture f, free;

    /* Of the layer's computation, that of its experts is the difference to a
     * layer with experts of another width. */
    c.dispatch_ns = c.expert_ns = c.layer_host_ns = 0;
    init(&f);
    f.options.constants = &c;
    free = f;
    free.job.model = &without;
    without.expert_ffn *= 2;
    COST(&f);
    COST(&free);
    const double products = 2 * 3.0 * T * COPIES * HIDDEN * 768;
    const double weights = 16 * 3.0 * HIDDEN * 768;
    CHECK_NEAR(free.cost.f.flops - f.cost.f.flops, products, 1e6);
    for (size_t i = 0; i < sizeof slower / sizeof *slower; i++) {
        f.job.framework.overlap_expert = 0;
        const double alone = both_passes_ns(&f, slower[i], &sent);
        const double f_own =
            (double)(f.cost.f.total_ns - f.cost.f.communication_ns);
        const double d_own =
            (double)(f.cost.d.total_ns - f.cost.d.communication_ns);
        const double w_own = (double)f.cost.w.total_ns;
        const double rate =
            989.5e3 * 0.87 * c.matmul_efficiency * c.experts_efficiency;
        const double rows = (double)T * COPIES;
        /* bytes of the three products, and of the activation function */
        const double moved =
            2 * (rows * (HIDDEN + 2 * 768) + rows * (768 + HIDDEN) + weights);
        f_ns = products / rate + bytes_ns(moved + 2 * 3 * rows * 768) +
               3 * c.kernel_ns;
        d_ns = products / rate + bytes_ns(moved + 2 * 5 * rows * 768) +
               3 * c.kernel_ns;
        w_ns = products / rate + bytes_ns(moved + weights * (8 - 2)) +
               2 * c.kernel_ns;
        f.job.framework.overlap_expert = 1;
        const double paired = both_passes_ns(&f, slower[i], &sent);
        const double exposed =
            exposed_ns(sent, f_own - f_ns, f_ns + d_ns + w_ns,
                       d_own - d_ns + w_own - w_ns, sms);
        CHECK_NEAR((alone - paired) / (7.0 / 8 * (4 * sent - exposed)), 1,
                   2e-3);
        f.job.framework.overlap_expert = 0.5;
        CHECK_NEAR(both_passes_ns(&f, slower[i], &sent), (alone + paired) / 2,
                   3);
    }
    f.job.framework.overlap_expert = 1;
    const double deepep = both_passes_ns(&f, 0.01, &sent);
    f.job.training.dispatcher = LH_DISPATCHER_HYBRIDEP;
    CHECK(both_passes_ns(&f, 0.01, &sent) < deepep);
    f.job.training.global_batch = 8; /* one microbatch: no partner */
    const double single = both_passes_ns(&f, 1, &sent);
    f.job.framework.overlap_expert = 0;
    CHECK_NEAR(both_passes_ns(&f, 1, &sent), single, 0);
}

/* The shared expert of a DeepSeek-V3 layer, 3 products of 7168 x 2048 per
 * token, hides at most its own time of an all-to-all. */
static void all_to_alls_hide_behind_shared_experts(void)
{
    const double flops = 2.0 * T * 3 * 7168 * 2048;
    fixture f;

    fixture_init(&f, "deepseek-v3");
    f.slice.first_layer = 10;
    f.layout.expert = f.layout.data = 8;
    f.sites[0].node_link.bytes_per_s /= 100;
    COST(&f);
    lh_cost alone = f.cost;
    f.job.framework.overlap_shared_experts = 1;
    COST(&f);
    const double rate = 989.5e3 * 0.87 * lh_cost_defaults()->matmul_efficiency;
    const double hidden = (double)(alone.f.total_ns - f.cost.f.total_ns);
    const double in_d = (double)(alone.d.total_ns - f.cost.d.total_ns);
    CHECK(hidden > flops / rate && hidden < 1.5 * flops / rate);
    CHECK(in_d > 2 * flops / rate && in_d < 3 * flops / rate);
    /* A part of the communication is hidden, and no computation. */
    CHECK_NEAR((double)(alone.f.communication_ns - f.cost.f.communication_ns),
               hidden, 2);
    CHECK_NEAR((double)(alone.d.communication_ns - f.cost.d.communication_ns),
               in_d, 2);
    CHECK_INT(f.cost.w.total_ns, alone.w.total_ns);
    f.job.framework.overlap_shared_experts = 0.5;
    lh_cost full = f.cost;
    COST(&f);
    CHECK_NEAR((double)(alone.f.total_ns - f.cost.f.total_ns),
               (double)(alone.f.total_ns - full.f.total_ns) / 2, 2);
}

int main(void)
{
    RUN(an_all_gather_is_never_uneven);
    RUN(all_to_alls_hide_behind_another_microbatch);
    RUN(all_to_alls_hide_behind_shared_experts);
    RUN(dispatchers_send_different_copies);
    RUN(an_all_to_all_sorts_tokens);
    RUN(dispatch_has_a_fixed_time);
    RUN(attention_has_its_own_rate);
    return test_summary();
}
