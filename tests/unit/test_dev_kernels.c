/* SPDX-License-Identifier: Apache-2.0 */
/* All instruction sets give the same bits at any alignment and length, and the
 * numbers are correct. */
#include "runtime/device/cpu_kernels.h"

#include "test.h"

#include <stdlib.h>

enum { ROWS = 5, MOST = 71, ROOM = 4096 };

static float uniform(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 16777216.0f - 0.5f;
}

/* Runs all kernels on the same inputs; writes their results to `out`. */
static size_t run_all(const lhi_kernels *k, size_t width, size_t skew,
                      float *out)
{
    static float in[4][ROOM + 16], x[ROOM + 16], y[ROOM + 16], z[ROOM + 16];
    uint32_t state = 1;
    size_t n = 0, all = ROWS * width;
    int32_t targets[ROWS] = {0, (int32_t)width - 1, 0, (int32_t)width / 2, 0};
    for (int i = 0; i < 4; i++)
        for (size_t j = 0; j < ROOM; j++)
            in[i][skew + j] = uniform(&state) * 4;
    const float *a = in[0] + skew, *b = in[1] + skew;
    float *p = x + skew, *q = y + skew, *r = z + skew;
#define KEEP(from, count)                                                      \
    do {                                                                       \
        memcpy(out + n, (from), (count) * sizeof *out);                        \
        n += (count);                                                          \
    } while (0)
    k->norm(a, b, p, q, ROWS, width, 1e-5f);
    KEEP(p, all);
    memcpy(p, a, all * sizeof *p);
    k->norm_backward(b, a, q, in[2] + skew, p, r, ROWS, width);
    KEEP(p, all);
    KEEP(r, width);
    k->layer_norm(a, b, in[2] + skew, p, q, r, ROWS, width, 1e-5f);
    KEEP(p, all);
    KEEP(q, ROWS);
    KEEP(r, ROWS);
    memcpy(p, a, all * sizeof *p);
    k->layer_norm_backward(b, a, q, in[3] + skew, in[2] + skew, p, r, ROWS,
                           width);
    KEEP(p, all);
    KEEP(r, 2 * width);
    k->gelu(a, p, all);
    KEEP(p, all);
    memcpy(p, a, all * sizeof *p);
    k->gelu_backward(p, b, all);
    k->add_row(p, b, ROWS, width);
    k->drop(p, width, ROWS, width, 0, 77, 1 << 22, 1.25f);
    KEEP(p, all);
    k->sum_rows(p, r, ROWS, width, false);
    k->sum_rows(a, r, ROWS, width, true);
    KEEP(r, width);
    if (width % 2 == 0) {
        k->rotate(a, width, p, width, ROWS, width, b, in[2] + skew, -1);
        KEEP(p, all);
    }
    if (width > ROWS) {
        memcpy(p, a, all * sizeof *p);
        k->softmax(p, width, ROWS, width - ROWS, width, 0.3f, q, r);
        KEEP(p, all);
        memcpy(p, a, all * sizeof *p);
        k->softmax_recompute(p, width, ROWS, width - ROWS, width, 0.3f, q, r);
        KEEP(p, all);
        memcpy(r, b, all * sizeof *r);
        k->softmax_backward(p, r, width, ROWS, width, 0.3f, a);
        KEEP(r, all);
    }
    k->row_dots(a, width, b, width, ROWS, width, q);
    KEEP(q, ROWS);
    memcpy(p, a, all * sizeof *p);
    k->scale_rows(p, width, ROWS, width, q);
    k->add(p, b, all);
    KEEP(p, all);
    k->round_bf16(p, width, p, width, ROWS, width);
    KEEP(p, all);
    k->sigmoid(p, all);
    KEEP(p, all);
    for (int rounds = 0; rounds < 2; rounds++) {
        memcpy(q, a, 2 * all * sizeof *q);
        k->swiglu(q, p, ROWS, width, rounds);
        KEEP(p, all);
        k->swiglu_backward(q, b, ROWS, width, rounds);
        KEEP(q, 2 * all);
    }
    memcpy(p, a, all * sizeof *p);
    double loss = k->cross_entropy(p, ROWS, width, targets, 0.25f);
    KEEP(p, all);
    out[n++] = (float)loss;
    out[n++] = (float)k->squares(a, all);
    lhi_adamw how = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1.5f, 1.2f, 0.7f};
    memcpy(p, a, all * sizeof *p);
    memcpy(q, b, all * sizeof *q);
    for (size_t i = 0; i < all; i++)
        r[i] = b[i] * b[i];
    k->adamw(&how, p, q, r, in[3] + skew, all);
    KEEP(p, all);
    KEEP(q, all);
    KEEP(r, all);
#undef KEEP
    return n;
}

static void same_bits(void)
{
    static float want[30 * ROOM], got[30 * ROOM];
    const lhi_kernels *sets[4];
    size_t n_sets = lhi_kernels_list_supported(sets, 4);
    CHECK(n_sets >= 1);
    CHECK(lhi_kernels_find_fastest() == sets[0]);
    for (size_t width = 1; width <= MOST; width++) {
        size_t n = run_all(sets[n_sets - 1], width, 0, want);
        for (size_t i = 0; i < n_sets; i++)
            for (size_t skew = 0; skew < 16; skew += 5) {
                CHECK_INT(run_all(sets[i], width, skew, got), n);
                CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0,
                          "%s, width %zu, skew %zu differs", sets[i]->name,
                          width, skew);
            }
    }
}

/* exp, through SwiGLU's sigmoid and the softmax. */
static void exponentials(void)
{
    const lhi_kernels *k = lhi_kernels_find_fastest();
    double worst = 0;
    for (double x = -87; x < 0; x += 0.00917) {
        float s[2] = {0, (float)x}, max, inv;
        k->softmax(s, 2, 1, 2, 2, 1, &max, &inv);
        double want = exp((double)(float)x);
        double error = fabs((double)s[1] - want) / want;
        worst = error > worst ? error : worst;
        CHECK(s[0] == 1);
    }
    CHECK_MSG(worst < 3e-7, "exp is off by %g", worst);
    float s[3] = {0, -88, -1000}, max, inv;
    k->softmax(s, 3, 1, 3, 3, 1, &max, &inv);
    CHECK(s[1] == 0 && s[2] == 0 && inv == 1);
    float bad[2] = {NAN, 0};
    k->softmax(bad, 2, 1, 2, 2, 1, &max, &inv);
    CHECK(isnan(inv));
    float far[4] = {100, 2, -100, 3}, out[2];
    k->swiglu(far, out, 1, 2, false); /* gate 100, 2; up -100, 3 */
    CHECK_NEAR(out[0], -10000, 1e-2);
    CHECK_NEAR(out[1], 2 / (1 + exp(-2.)) * 3, 1e-5);
}

/* GPT-2's formula; its derivative by finite differences. */
static double gelu_of(double x)
{
    return 0.5 * x *
           (1 + tanh(sqrt(2 / 3.14159265358979323846) *
                     (x + 0.044715 * x * x * x)));
}

static void gelus(void)
{
    const lhi_kernels *k = lhi_kernels_find_fastest();
    for (double x = -30; x < 30; x += 0.0437) {
        float v = (float)x, one = 1, out;
        double d = 1e-5, at = (double)v;
        k->gelu(&v, &out, 1);
        CHECK_NEAR(out, gelu_of(at), 1e-6 * (1 + fabs(x)));
        k->gelu_backward(&v, &one, 1);
        CHECK_NEAR(v, (gelu_of(at + d) - gelu_of(at - d)) / (2 * d), 2e-6);
    }
    float bad[2] = {NAN, -1e20f}, out[2];
    k->gelu(bad, out, 2);
    CHECK(isnan(out[0]) && fabs((double)out[1]) < 1e-6);
}

static void entropy(void)
{
    const lhi_kernels *k = lhi_kernels_find_fastest();
    float l[3] = {1, 2, 4};
    int32_t target = 1;
    double sum = exp(1) + exp(2) + exp(4);
    CHECK_NEAR(k->cross_entropy(l, 1, 3, &target, 0.5f), log(sum) - 2, 1e-6);
    CHECK_NEAR(l[0], 0.5 * exp(1) / sum, 1e-7);
    CHECK_NEAR(l[1], 0.5 * (exp(2) / sum - 1), 1e-7);
    float bad[3] = {1, NAN, 4};
    CHECK(!isfinite(k->cross_entropy(bad, 1, 3, &target, 0)));
}

/* bf16 has 8 significant bits: 1 + 2^-8 and 1 + 3 * 2^-8 are ties. */
static void bf16(void)
{
    const lhi_kernels *k = lhi_kernels_find_fastest();
    static const float rows[][2] = {
        {1, 1},
        {1.00390625f, 1},
        {1.01171875f, 1.015625f},
        {-1.00390637f, -1.0078125f},
        {3.14159274f, 3.140625f},
        {0, 0},
        {1e-45f, 0},
        {INFINITY, INFINITY},
        {3.4e38f, INFINITY},
    };
    float x = NAN;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        x = rows[i][0];
        k->round_bf16(&x, 1, &x, 1, 1, 1);
        CHECK_MSG(!(x > rows[i][1]) && !(x < rows[i][1]),
                  "%.9g becomes %.9g, not %.9g", (double)rows[i][0], (double)x,
                  (double)rows[i][1]);
    }
    x = NAN;
    k->round_bf16(&x, 1, &x, 1, 1, 1);
    CHECK(isnan(x));
}

/* As in autocast, silu(1) is rounded to 187 / 256 and pi, silu's gradient, to
 * 3.140625. */
static void swiglu_in_bf16(void)
{
    const lhi_kernels *k = lhi_kernels_find_fastest();
    const double s = 1 / (1 + exp(-1.)), slope = s + s * (1 - s);
    float x[2] = {1, 3.14159274f}, one = 1, out;
    k->swiglu(x, &out, 1, 1, true);
    CHECK_NEAR(out, 187 / 256. * (double)x[1], 1e-6);
    k->swiglu_backward(x, &one, 1, 1, true);
    CHECK_NEAR(x[0], 3.140625 * slope, 1e-6);
    CHECK_NEAR(x[1], 187 / 256., 1e-9);
}

int main(void)
{
    RUN(same_bits);
    RUN(exponentials);
    RUN(gelus);
    RUN(entropy);
    RUN(bf16);
    RUN(swiglu_in_bf16);
    return test_summary();
}
