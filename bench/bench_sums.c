/* SPDX-License-Identifier: Apache-2.0 */
/* Compares summation methods for gradients and tests whether the sum depends on
 * the order.
 *
 *     bench-sums [OPTIMIZER.SAFETENSORS ...]
 *
 * Each file is a checkpoint after one step without clipping, so its running
 * means are a tenth of one microbatch's gradients; all files are from the same
 * model. Without files, terms are log-uniform over the normal floats. Methods:
 *
 *     float32   4 bytes per sum, as in training
 *     fixed     8 bytes, a 64-bit integer in power-of-two units that is
 *               equal for all sums; terms are truncated to units
 *     bins      8 bytes: two digits of 20 bits with capacity for 511 terms,
 *               and the first digit's position; terms are truncated to the
 *               largest term's digits (Demmel and Nguyen,
 *               doi:10.1109/TC.2014.2345391)
 *
 * Prints four results: an addition's time (processor time, medians of
 * alternating rounds, in plain instructions and with AVX-512); how many sums'
 * bits differ between orders and groupings; the error against exact
 * sums; and the range covered by fixed point with different units. Fails if an
 * order-independent method depends on the order. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MOST_TERMS = 64,
    DRAWN_TERMS = 16,
    DRAWN_VALUES = 1 << 16,
    SMALL = 4096, /* fits into a cache */
    ROUNDS = 21,
    SHUFFLES = 8,
    DIGIT = 20, /* bits per bin */
    N_BINS = 14,
    N_WAYS = 3,
};

/* Terms to be summed: one array per microbatch. */
typedef struct terms {
    float *of[MOST_TERMS];
    size_t n; /* values per term */
    uint32_t n_terms;
} terms;

/* Fixed-point format. */
typedef struct fixed_format {
    int top; /* sums are below 2^top */
    double units, unit;
    float limit; /* largest term, so that MOST_TERMS fit */
} fixed_format;

static fixed_format make_grid(int top)
{
    return (fixed_format){.top = top,
                          .units = ldexp(1, 63 - top),
                          .unit = ldexp(1, top - 63),
                          .limit = ldexpf(1, top) / MOST_TERMS};
}

/* --- methods ------------------------------------------------------------ */

#if defined __x86_64__ && defined __GNUC__
#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define HAS_WIDE                                                               \
    (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
#else
#define WIDE
#define HAS_WIDE false
#endif
#define ALWAYS static inline __attribute__((always_inline))

typedef uint64_t (*adder)(void *sums, const float *x, size_t n,
                          const fixed_format *g);

/* Adds terms to sums. Each variant returns how many terms are out of range. */
ALWAYS uint64_t add_float(float *sums, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sums[i] += x[i];
    return 0;
}

/* Compares magnitudes as integers, which vectorises. */
ALWAYS uint64_t add_fixed(int64_t *sums, const float *x, size_t n,
                          const fixed_format *g)
{
    const double units = g->units;
    uint32_t outside = 0, limit;
    memcpy(&limit, &g->limit, sizeof limit);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        float fitting;
        memcpy(&bits, &x[i], sizeof bits);
        uint32_t fits = (bits & 0x7fffffff) < limit;
        bits &= 0 - fits;
        memcpy(&fitting, &bits, sizeof fitting);
        sums[i] += (int64_t)((double)fitting * units);
        outside += 1 - fits;
    }
    return outside;
}

/* Sum in bins: 30 bits per digit, 4 for the first digit's position. */
typedef struct digits {
    int64_t first, second;
    uint32_t place;
} digits;

ALWAYS digits take_apart(uint64_t sum)
{
    return (digits){(int64_t)sum >> 34, (int64_t)(sum << 30) >> 34,
                    (uint32_t)(sum & 15)};
}

ALWAYS uint64_t put_together(digits d)
{
    return (uint64_t)d.first << 34 |
           ((uint64_t)d.second & ((1u << 30) - 1)) << 4 | d.place;
}

ALWAYS digits raise_to(digits d, uint32_t place)
{
    if (place > d.place)
        d = (digits){0, place == d.place + 1 ? d.first : 0, place};
    return d;
}

/* Returns the lowest position whose first digit a float can have. */
ALWAYS uint32_t digit_position(uint32_t bits)
{
    return ((bits >> 23 & 255) + 24 + DIGIT - 1) / DIGIT - 1;
}

ALWAYS uint64_t add_bins(uint64_t *sums, const float *x, size_t n,
                         const double *units)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        digits d = raise_to(take_apart(sums[i]), digit_position(bits));
        double at = (double)x[i] * units[d.place];
        int32_t first = (int32_t)at;
        d.first += first;
        d.second += (int32_t)((at - first) * (1 << DIGIT));
        sums[i] = put_together(d);
    }
    return 0;
}

/* Reciprocal unit per position: the first unit is 2^-150, each next one 2^20
 * times larger, so that all floats have a position. */
static const double bin_units[N_BINS] = {
    0x1p150, 0x1p130, 0x1p110, 0x1p90,  0x1p70,  0x1p50,  0x1p30,
    0x1p10,  0x1p-10, 0x1p-30, 0x1p-50, 0x1p-70, 0x1p-90, 0x1p-110};

static uint64_t float_plain(void *s, const float *x, size_t n,
                            const fixed_format *g)
{
    (void)g;
    return add_float(s, x, n);
}

static uint64_t fixed_plain(void *s, const float *x, size_t n,
                            const fixed_format *g)
{
    return add_fixed(s, x, n, g);
}

static uint64_t bins_plain(void *s, const float *x, size_t n,
                           const fixed_format *g)
{
    (void)g;
    return add_bins(s, x, n, bin_units);
}

WIDE static uint64_t float_wide(void *s, const float *x, size_t n,
                                const fixed_format *g)
{
    (void)g;
    return add_float(s, x, n);
}

WIDE static uint64_t fixed_wide(void *s, const float *x, size_t n,
                                const fixed_format *g)
{
    return add_fixed(s, x, n, g);
}

WIDE static uint64_t bins_wide(void *s, const float *x, size_t n,
                               const fixed_format *g)
{
    (void)g;
    return add_bins(s, x, n, bin_units);
}

/* Merges two groups' sums. */
static void merge_float(void *sums, const void *others, size_t n)
{
    add_float(sums, others, n);
}

static void merge_fixed(void *sums, const void *others, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((int64_t *)sums)[i] += ((const int64_t *)others)[i];
}

static void merge_bins(void *sums, const void *others, size_t n)
{
    uint64_t *mine = sums;
    const uint64_t *theirs = others;
    for (size_t i = 0; i < n; i++) {
        digits a = take_apart(mine[i]), b = take_apart(theirs[i]);
        uint32_t place = a.place > b.place ? a.place : b.place;
        a = raise_to(a, place);
        b = raise_to(b, place);
        a.first += b.first;
        a.second += b.second;
        mine[i] = put_together(a);
    }
}

static double float_value(const void *sums, size_t i, const fixed_format *g)
{
    (void)g;
    return (double)((const float *)sums)[i];
}

static double fixed_value(const void *sums, size_t i, const fixed_format *g)
{
    return (double)((const int64_t *)sums)[i] * g->unit;
}

static double bins_value(const void *sums, size_t i, const fixed_format *g)
{
    (void)g;
    digits d = take_apart(((const uint64_t *)sums)[i]);
    return ((double)d.first + (double)d.second / (1 << DIGIT)) /
           bin_units[d.place];
}

/* One summation method with its functions. */
typedef struct method {
    const char *name;
    size_t bytes;
    adder plain, wide;
    void (*join)(void *sums, const void *others, size_t n);
    double (*value)(const void *sums, size_t i, const fixed_format *g);
} method;

static const method ways[N_WAYS] = {
    {"float32", 4, float_plain, float_wide, merge_float, float_value},
    {"fixed", 8, fixed_plain, fixed_wide, merge_fixed, fixed_value},
    {"bins", 8, bins_plain, bins_wide, merge_bins, bins_value},
};

/* --- terms -------------------------------------------------------------- */

static void fail(const char *file, const char *what)
{
    fprintf(stderr, "bench-sums: %s: %s\n", file, what);
    exit(1);
}

static void *allocate(size_t n, size_t size)
{
    void *out = calloc(n ? n : 1, size);
    if (!out)
        fail("memory", "there is not enough");
    return out;
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return *state >> 33;
}

static void draw_terms(terms *t)
{
    uint64_t state = 1;
    t->n = DRAWN_VALUES;
    t->n_terms = DRAWN_TERMS;
    for (uint32_t k = 0; k < t->n_terms; k++) {
        t->of[k] = allocate(t->n, sizeof(float));
        for (size_t i = 0; i < t->n; i++) {
            double m = 1 + (double)draw(&state) / 0x1p31;
            int e = (int)(draw(&state) % 250) - 126; /* keeps sums finite */
            t->of[k][i] = (float)ldexp(draw(&state) & 1 ? m : -m, e);
        }
    }
}

/* Reads a safetensors header and returns the offset of the data. */
static json_t *read_header(const char *name, FILE *file, uint64_t *data)
{
    unsigned char size[8];
    if (fread(size, 1, sizeof size, file) != sizeof size)
        fail(name, "is not a safetensors file");
    *data = 0;
    for (int i = 7; i >= 0; i--)
        *data = *data << 8 | size[i];
    if (*data > 100000000)
        fail(name, "is not a safetensors file");
    char *text = allocate(*data, 1);
    json_t *header = fread(text, 1, *data, file) == *data
                         ? json_loadb(text, *data, 0, NULL)
                         : NULL;
    if (!header)
        fail(name, "is not a safetensors file");
    free(text);
    *data += sizeof size;
    return header;
}

static bool is_mean(const char *key)
{
    const char *end = strrchr(key, '.');
    return end && strcmp(end, ".exp_avg") == 0;
}

static uint64_t offset_of(const json_t *tensor, size_t i)
{
    return (uint64_t)json_integer_value(
        json_array_get(json_object_get(tensor, "data_offsets"), i));
}

static void read_term(terms *t, const char *name)
{
    FILE *file = fopen(name, "rb");
    const char *key;
    json_t *tensor;
    uint64_t data;
    size_t n = 0;
    if (!file || t->n_terms == MOST_TERMS)
        fail(name, file ? "is one file too many" : "cannot be read");
    json_t *header = read_header(name, file, &data);
    json_object_foreach(header, key, tensor) if (is_mean(key)) n +=
        (offset_of(tensor, 1) - offset_of(tensor, 0)) / sizeof(float);
    if (n == 0 || (t->n_terms > 0 && n != t->n))
        fail(name, "has no means, or others than the file before");
    t->n = n;
    float *to = t->of[t->n_terms++] = allocate(n, sizeof *to);
    json_object_foreach(header, key, tensor)
    {
        if (!is_mean(key))
            continue;
        size_t size =
            (offset_of(tensor, 1) - offset_of(tensor, 0)) / sizeof *to;
        if (fseek(file, (long)(data + offset_of(tensor, 0)), SEEK_SET) != 0 ||
            fread(to, sizeof *to, size, file) != size)
            fail(name, "ends too early");
        to += size;
    }
    for (size_t i = 0; i < n; i++) /* divides by 1 - beta1 */
        t->of[t->n_terms - 1][i] *= 10;
    json_decref(header);
    fclose(file);
}

/* --- order dependence --------------------------------------------------- */

/* Adds terms `order[from]` to `order[to - 1]` sequentially. */
static uint64_t add_range(const method *w, const terms *t,
                          const fixed_format *g, const uint32_t *order,
                          uint32_t from, uint32_t to, void *sums)
{
    uint64_t outside = 0;
    memset(sums, 0, t->n * w->bytes);
    for (uint32_t k = from; k < to; k++)
        outside += w->plain(sums, t->of[order[k]], t->n, g);
    return outside;
}

/* Adds groups of `size` terms separately, then merges them in order. */
static void add_groups(const method *w, const terms *t, const fixed_format *g,
                       const uint32_t *order, uint32_t size, void *sums)
{
    void *group = allocate(t->n, w->bytes);
    memset(sums, 0, t->n * w->bytes);
    for (uint32_t k = 0; k < t->n_terms; k += size) {
        uint32_t end = k + size < t->n_terms ? k + size : t->n_terms;
        add_range(w, t, g, order, k, end, group);
        w->join(sums, group, t->n);
    }
    free(group);
}

static void shuffle(uint32_t *order, uint32_t n, uint64_t *state)
{
    for (uint32_t k = n; k > 1; k--) {
        uint32_t j = (uint32_t)(draw(state) % k), was = order[k - 1];
        order[k - 1] = order[j];
        order[j] = was;
    }
}

/* Computes sums that are exact except for the last bits of doubles (Neumaier),
 * and the sums of magnitudes. */
static void add_exactly(const terms *t, double *sums, double *sizes)
{
    for (size_t i = 0; i < t->n; i++) {
        double sum = 0, rest = 0, size = 0;
        for (uint32_t k = 0; k < t->n_terms; k++) {
            double x = (double)t->of[k][i], next = sum + x;
            rest += fabs(sum) >= fabs(x) ? sum - next + x : x - next + sum;
            sum = next;
            size += fabs(x);
        }
        sums[i] = sum + rest;
        sizes[i] = size;
    }
}

/* Prints how many sums differ between orders, relative to their
 * terms' magnitudes, and the error of in-order sums against exact ones: the
 * worst relative error, and the error norm relative to the exact norm. Returns
 * the number that differ. */
static size_t compare_orders(const method *w, const terms *t,
                             const fixed_format *g, const double *exact,
                             const double *sizes)
{
    uint32_t order[MOST_TERMS];
    uint64_t state = 7;
    unsigned char *first = allocate(t->n, w->bytes),
                  *other = allocate(t->n, w->bytes);
    bool *differs = allocate(t->n, sizeof *differs);
    double apart = 0, worst = 0, squares = 0, all = 0;
    size_t n = 0;
    for (uint32_t k = 0; k < t->n_terms; k++)
        order[k] = k;
    uint64_t outside = add_range(w, t, g, order, 0, t->n_terms, first);
    for (int turn = 0; turn < SHUFFLES + 3; turn++) {
        if (turn < 3)
            add_groups(w, t, g, order, 2u << turn, other);
        else {
            shuffle(order, t->n_terms, &state);
            add_groups(w, t, g, order, turn % 2 ? 1 : 3, other);
        }
        for (size_t i = 0; i < t->n; i++) {
            double d = fabs(w->value(first, i, g) - w->value(other, i, g));
            differs[i] = differs[i] || memcmp(first + i * w->bytes,
                                              other + i * w->bytes, w->bytes);
            if (sizes[i] > 0 && d / sizes[i] > apart)
                apart = d / sizes[i];
        }
    }
    for (size_t i = 0; i < t->n; i++) {
        double d = fabs(w->value(first, i, g) - exact[i]);
        n += differs[i];
        if (sizes[i] > 0 && d / sizes[i] > worst)
            worst = d / sizes[i];
        squares += d / 0x1p126 * (d / 0x1p126);
        all += exact[i] / 0x1p126 * (exact[i] / 0x1p126);
    }
    printf("\"values_that_differ\": %zu, \"worst_apart\": %.3g, "
           "\"worst_error\": %.3g, \"error_of_norm\": %.3g, "
           "\"terms_outside\": %" PRIu64 "}",
           n, apart, worst, all > 0 ? sqrt(squares / all) : 0, outside);
    free(first);
    free(other);
    free(differs);
    return n;
}

/* --- time --------------------------------------------------------------- */

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Measures nanoseconds per value for each method, in alternating rounds. */
static void measure(const terms *t, const fixed_format *g, size_t n, bool wide,
                    double ns[N_WAYS])
{
    double rounds[N_WAYS][ROUNDS];
    size_t repeats = n < t->n ? t->n / n : 1;
    uint64_t outside = 0;
    void *sums[N_WAYS];
    for (int w = 0; w < N_WAYS; w++)
        sums[w] = allocate(n, ways[w].bytes);
    for (int k = 0; k < ROUNDS; k++)
        for (int w = 0; w < N_WAYS; w++) {
            adder add = wide ? ways[w].wide : ways[w].plain;
            memset(sums[w], 0, n * ways[w].bytes);
            double begin = processor_time();
            for (size_t r = 0; r < repeats; r++)
                for (uint32_t m = 0; m < t->n_terms; m++)
                    outside += add(sums[w], t->of[m], n, g);
            rounds[w][k] = (processor_time() - begin) /
                           ((double)repeats * t->n_terms * (double)n) * 1e9;
        }
    for (int w = 0; w < N_WAYS; w++) {
        ns[w] = bench_median(rounds[w], ROUNDS);
        free(sums[w]);
    }
    if (outside == UINT64_MAX) /* keeps the result observable */
        printf(" ");
}

static void print_times(const terms *t, const fixed_format *g, size_t n)
{
    for (int wide = 0; wide <= (HAS_WIDE ? 1 : 0); wide++) {
        double ns[N_WAYS];
        measure(t, g, n, wide, ns);
        printf("%s\n  {\"values\": %zu, \"instructions\": \"%s\"",
               n == SMALL && !wide ? "" : ",", n, wide ? "avx512" : "plain");
        for (int w = 0; w < N_WAYS; w++)
            printf(", \"%s_ns\": %.3f", ways[w].name, ns[w]);
        printf("}");
    }
}

/* --- range -------------------------------------------------------------- */

static int compare_floats(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Prints how non-zero magnitudes are distributed. */
static void print_magnitudes(const terms *t)
{
    static const double shares[] = {0, .001, .01, .5, .99, 1};
    float *all = allocate(t->n * t->n_terms, sizeof *all);
    size_t n = 0;
    for (uint32_t k = 0; k < t->n_terms; k++)
        for (size_t i = 0; i < t->n; i++)
            if (t->of[k][i] != 0)
                all[n++] = fabsf(t->of[k][i]);
    qsort(all, n, sizeof *all, compare_floats);
    printf(",\n \"zeros\": %zu, \"magnitudes\": {", t->n * t->n_terms - n);
    for (size_t k = 0; n > 0 && k < sizeof shares / sizeof *shares; k++)
        printf("%s\"%g\": %.3g", k ? ", " : "", shares[k],
               (double)all[(size_t)(shares[k] * (double)(n - 1))]);
    printf("}");
    free(all);
}

/* Prints the fixed-point sums below 2^top that are less accurate than a float.
 */
static void print_range(const terms *t, int top, const double *exact,
                        const double *sizes)
{
    const fixed_format g = make_grid(top);
    uint32_t order[MOST_TERMS];
    int64_t *sums = allocate(t->n, sizeof *sums);
    size_t lost = 0, worse = 0;
    double worst = 0;
    for (uint32_t k = 0; k < t->n_terms; k++)
        order[k] = k;
    uint64_t outside = add_range(&ways[1], t, &g, order, 0, t->n_terms, sums);
    for (size_t i = 0; i < t->n; i++) {
        double d = fabs(fixed_value(sums, i, &g) - exact[i]);
        lost += sums[i] == 0 && exact[i] != 0;
        worse += d > fabs(exact[i]) * 0x1p-24;
        if (sizes[i] > 0 && d / sizes[i] > worst)
            worst = d / sizes[i];
    }
    printf("%s\n  {\"below\": \"2^%d\", \"unit\": \"2^%d\", "
           "\"terms_outside\": %" PRIu64 ", \"sums_lost\": %zu, "
           "\"sums_worse_than_float\": %zu, \"worst_error\": %.3g}",
           top == 0 ? "" : ",", top, top - 63, outside, lost, worse, worst);
    free(sums);
}

int main(int argc, char **argv)
{
    terms t = {0};
    const fixed_format g = make_grid(10);
    size_t differ[N_WAYS];
    for (int i = 1; i < argc; i++)
        read_term(&t, argv[i]);
    if (argc < 2)
        draw_terms(&t);
    double *exact = allocate(t.n, sizeof *exact),
           *sizes = allocate(t.n, sizeof *sizes);
    add_exactly(&t, exact, sizes);
    bench_begin("sums");
    printf(",\n \"of\": \"%s\", \"terms\": %" PRIu32 ", \"values\": %zu",
           argc < 2 ? "log-uniform" : "gradients", t.n_terms, t.n);
    print_magnitudes(&t);
    printf(",\n \"ways\": [");
    for (int w = 0; w < N_WAYS; w++) {
        printf("%s\n  {\"way\": \"%s\", \"bytes\": %zu, ", w ? "," : "",
               ways[w].name, ways[w].bytes);
        differ[w] = compare_orders(&ways[w], &t, &g, exact, sizes);
    }
    printf("],\n \"fixed\": [");
    for (int top = 0; top <= 40; top += 10)
        print_range(&t, top, exact, sizes);
    printf("],\n \"time\": [");
    print_times(&t, &g, SMALL);
    print_times(&t, &g, t.n);
    printf("]}\n");
    for (uint32_t k = 0; k < t.n_terms; k++)
        free(t.of[k]);
    free(exact);
    free(sizes);
    if (differ[1] > 0 || differ[2] > 0)
        fail("sums", "orders show where they must not");
    return 0;
}
