/* SPDX-License-Identifier: Apache-2.0 */
/* Time of token dispatchers, and of cuDNN's attention, by hand. */
#include "test_cost.h"

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

int main(void)
{
    RUN(dispatchers_send_different_copies);
    RUN(an_all_to_all_sorts_tokens);
    RUN(dispatch_has_a_fixed_time);
    RUN(attention_has_its_own_rate);
    return test_summary();
}
