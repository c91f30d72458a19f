/* SPDX-License-Identifier: Apache-2.0 */
/* Included by kernels_*.c, each with its own instruction set and name for the
 * table: see kernels.h. */
#include "dev/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define INLINE static inline __attribute__((always_inline))

enum { WIDE = 16 };
typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef double dvec __attribute__((vector_size(64))); /* 8 */
typedef float hvec __attribute__((vector_size(32)));  /* 8 */
typedef float vec_any __attribute__((vector_size(64), aligned(4), may_alias));
typedef float hvec_any __attribute__((vector_size(32), aligned(4), may_alias));

INLINE vec load(const float *p)
{
    return *(const vec_any *)p;
}

INLINE void store(float *p, vec x)
{
    *(vec_any *)p = x;
}

/* The first n of 16; `other` beyond. */
INLINE vec load_part(const float *p, size_t n, float other)
{
    float x[WIDE];
    for (size_t i = 0; i < WIDE; i++)
        x[i] = i < n ? p[i] : other;
    return load(x);
}

INLINE void store_part(float *p, size_t n, vec x)
{
    float all[WIDE];
    store(all, x);
    for (size_t i = 0; i < n; i++)
        p[i] = all[i];
}

INLINE vec get(const float *p, size_t i, size_t n)
{
    return n - i >= WIDE ? load(p + i) : load_part(p + i, n - i, 0);
}

INLINE void put(float *p, size_t i, size_t n, vec x)
{
    if (n - i >= WIDE)
        store(p + i, x);
    else
        store_part(p + i, n - i, x);
}

INLINE vec splat(float x)
{
    vec zero = {0};
    return zero + x;
}

/* Always in the same tree. */
INLINE float sum(vec v)
{
    float x[WIDE];
    store(x, v);
    for (size_t half = WIDE / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

INLINE vec pick(ivec mask, vec yes, vec no)
{
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

INLINE vec most(vec a, vec b)
{
    return pick(a > b, a, b);
}

INLINE vec least(vec a, vec b)
{
    return pick(a < b, a, b);
}

INLINE float largest(vec v)
{
    float x[WIDE];
    store(x, v);
    for (size_t half = WIDE / 2; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
    return x[0];
}

/* exp with a relative error below 3e-7 (tests/unit/test_dev_kernels.c), 0
 * below -87.3, cut at 88.3. x = n ln 2 + r, |r| <= ln 2 / 2, and e^r by its
 * series, whose last coefficients are fitted. NaN stays NaN. */
INLINE vec exponential(vec x)
{
    const vec shift = splat(12582912.0f); /* 1.5 * 2^23: rounds to whole */
    ivec tiny = x < splat(-87.3f), odd = x != x;
    vec y = most(least(x, splat(88.3f)), splat(-87.3f));
    vec n = y * splat(1.44269504088896341f) + shift;
    ivec exponent = (ivec)n << 23;
    n = n - shift;
    vec r = y - n * splat(0.693359375f) - n * splat(-2.12194440e-4f);
    vec p = splat(1.9875691500e-4f);
    p = p * r + splat(1.3981999507e-3f);
    p = p * r + splat(8.3334519073e-3f);
    p = p * r + splat(4.1665795894e-2f);
    p = p * r + splat(1.6666665459e-1f);
    p = p * r + splat(5.0000001201e-1f);
    p = p * r * r + r + splat(1.0f);
    p = (vec)((ivec)p + exponent);
    p = pick(tiny, splat(0), p);
    return pick(odd, x, p);
}

static void norm(const float *x, const float *weight, float *out, float *inv,
                 size_t rows, size_t width, float epsilon)
{
    for (size_t row = 0; row < rows; row++, x += width, out += width) {
        vec squares = splat(0);
        for (size_t i = 0; i < width; i += WIDE) {
            vec v = get(x, i, width);
            squares += v * v;
        }
        float by = 1 / sqrtf(sum(squares) / (float)width + epsilon);
        inv[row] = by;
        for (size_t i = 0; i < width; i += WIDE)
            put(out, i, width, get(x, i, width) * by * get(weight, i, width));
    }
}

static void norm_back(const float *d_out, const float *weight, const float *inv,
                      const float *add, float *x, float *d_weight, size_t rows,
                      size_t width)
{
    memset(d_weight, 0, width * sizeof *d_weight);
    for (size_t row = 0; row < rows; row++, x += width, d_out += width) {
        float by = inv[row];
        vec dots = splat(0);
        for (size_t i = 0; i < width; i += WIDE) {
            vec d = get(d_out, i, width), v = get(x, i, width);
            dots += d * get(weight, i, width) * v;
            put(d_weight, i, width, get(d_weight, i, width) + d * v * by);
        }
        float along = sum(dots) * by * by * by / (float)width;
        for (size_t i = 0; i < width; i += WIDE) {
            vec d = get(d_out, i, width) * get(weight, i, width) * by -
                    get(x, i, width) * along;
            if (add)
                d += get(add, i, width);
            put(x, i, width, d);
        }
        if (add)
            add += width;
    }
}

static void rotate(const float *in, size_t in_stride, float *out,
                   size_t out_stride, size_t rows, size_t dim,
                   const float *cosines, const float *sines, float direction)
{
    size_t half = dim / 2;
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < half; i += WIDE) {
            vec c = get(cosines, i, half), s = get(sines, i, half) * direction;
            vec a = get(in, i, half), b = get(in + half, i, half);
            put(out, i, half, a * c - b * s);
            put(out + half, i, half, b * c + a * s);
        }
        in += in_stride;
        out += out_stride;
        cosines += half;
        sines += half;
    }
}

static void softmax(float *s, size_t stride, size_t rows, size_t first,
                    size_t width, float scale, float *max, float *inv)
{
    for (size_t row = 0; row < rows; row++, s += stride) {
        size_t n = first + row, i = 0;
        vec top = splat(-INFINITY), total = splat(0);
        for (; i + WIDE <= n; i += WIDE)
            top = most(load(s + i), top);
        if (i < n)
            top = most(load_part(s + i, n - i, -INFINITY), top);
        float high = largest(top) * scale;
        for (i = 0; i + WIDE <= n; i += WIDE) {
            vec p = exponential(load(s + i) * scale - high);
            store(s + i, p);
            total += p;
        }
        if (i < n) {
            vec p =
                exponential(load_part(s + i, n - i, -INFINITY) * scale - high);
            store_part(s + i, n - i, p);
            total += p;
        }
        if (n < width)
            memset(s + n, 0, (width - n) * sizeof *s);
        max[row] = high;
        inv[row] = 1 / sum(total);
    }
}

static void softmax_again(float *s, size_t stride, size_t rows, size_t first,
                          size_t width, float scale, const float *max,
                          const float *inv)
{
    for (size_t row = 0; row < rows; row++, s += stride) {
        size_t n = first + row;
        for (size_t i = 0; i < n; i += WIDE)
            put(s, i, n,
                exponential(get(s, i, n) * scale - max[row]) * inv[row]);
        if (n < width)
            memset(s + n, 0, (width - n) * sizeof *s);
    }
}

static void softmax_back(const float *p, float *d, size_t stride, size_t rows,
                         size_t width, float scale, const float *delta)
{
    for (size_t row = 0; row < rows; row++, p += stride, d += stride)
        for (size_t i = 0; i < width; i += WIDE)
            put(d, i, width,
                get(p, i, width) * (get(d, i, width) - delta[row]) * scale);
}

static void scale_rows(float *x, size_t stride, size_t rows, size_t width,
                       const float *by)
{
    for (size_t row = 0; row < rows; row++, x += stride)
        for (size_t i = 0; i < width; i += WIDE)
            put(x, i, width, get(x, i, width) * by[row]);
}

static void row_dots(const float *a, size_t a_stride, const float *b,
                     size_t b_stride, size_t rows, size_t width, float *out)
{
    for (size_t row = 0; row < rows; row++, a += a_stride, b += b_stride) {
        vec dots = splat(0);
        for (size_t i = 0; i < width; i += WIDE)
            dots += get(a, i, width) * get(b, i, width);
        out[row] = sum(dots);
    }
}

static void swiglu(const float *gate_up, float *out, size_t rows, size_t width)
{
    for (size_t row = 0; row < rows; row++, gate_up += 2 * width, out += width)
        for (size_t i = 0; i < width; i += WIDE) {
            vec g = get(gate_up, i, width);
            put(out, i, width,
                g / (exponential(-g) + 1) * get(gate_up + width, i, width));
        }
}

static void swiglu_back(float *gate_up, const float *d_out, size_t rows,
                        size_t width)
{
    for (size_t row = 0; row < rows;
         row++, gate_up += 2 * width, d_out += width)
        for (size_t i = 0; i < width; i += WIDE) {
            vec g = get(gate_up, i, width), d = get(d_out, i, width);
            vec u = get(gate_up + width, i, width);
            vec s = 1 / (exponential(-g) + 1), gs = g * s;
            put(gate_up, i, width, d * u * (s + gs * (1 - s)));
            put(gate_up + width, i, width, d * gs);
        }
}

static double cross_entropy(float *logits, size_t rows, size_t width,
                            const int32_t *targets, float scale)
{
    double loss = 0;
    for (size_t row = 0; row < rows; row++, logits += width) {
        vec top = splat(-INFINITY), total = splat(0);
        size_t i = 0;
        for (; i + WIDE <= width; i += WIDE)
            top = most(load(logits + i), top);
        if (i < width)
            top = most(load_part(logits + i, width - i, -INFINITY), top);
        float high = largest(top), right = logits[targets[row]];
        for (i = 0; i + WIDE <= width; i += WIDE) {
            vec p = exponential(load(logits + i) - high);
            store(logits + i, p);
            total += p;
        }
        if (i < width) {
            vec p =
                exponential(load_part(logits + i, width - i, -INFINITY) - high);
            store_part(logits + i, width - i, p);
            total += p;
        }
        float all = sum(total);
        loss += log((double)all) + (double)high - (double)right;
        if (scale > 0) {
            float by = scale / all;
            for (i = 0; i < width; i += WIDE)
                put(logits, i, width, get(logits, i, width) * by);
            logits[targets[row]] -= scale;
        }
    }
    return loss;
}

static void add(float *to, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += WIDE)
        put(to, i, n, get(to, i, n) + get(x, i, n));
}

static double squares(const float *x, size_t n)
{
    dvec low = {0}, high = {0};
    double lanes[8], all = 0;
    for (size_t i = 0; i < n; i += WIDE) {
        float part[WIDE];
        const float *p = x + i;
        if (n - i < WIDE) {
            store(part, load_part(p, n - i, 0));
            p = part;
        }
        dvec a = __builtin_convertvector((hvec) * (const hvec_any *)p, dvec);
        dvec b =
            __builtin_convertvector((hvec) * (const hvec_any *)(p + 8), dvec);
        low += a * a;
        high += b * b;
    }
    low += high;
    memcpy(lanes, &low, sizeof lanes);
    for (int i = 0; i < 8; i++)
        all += lanes[i];
    return all;
}

INLINE void take_roots(vec *x)
{
    float v[WIDE];
    store(v, *x);
    for (int i = 0; i < WIDE; i++)
        v[i] = sqrtf(v[i]);
    *x = load(v);
}

static void adamw(const lhi_adamw *how, float *value, float *m, float *v,
                  const float *gradient, size_t n)
{
    float keep = 1 - how->rate * how->decay;
    float step = how->rate * how->correction1;
    for (size_t i = 0; i < n; i += WIDE) {
        vec g = get(gradient, i, n) * how->scale;
        vec first = get(m, i, n) * how->beta1 + g * (1 - how->beta1);
        vec second = get(v, i, n) * how->beta2 + g * g * (1 - how->beta2);
        vec size = second;
        take_roots(&size);
        size = size * how->correction2 + how->epsilon;
        put(m, i, n, first);
        put(v, i, n, second);
        put(value, i, n, get(value, i, n) * keep - first / size * step);
    }
}

const lhi_kernels KERNELS = {
    .name = KERNELS_NAME,
    .norm = norm,
    .norm_back = norm_back,
    .rotate = rotate,
    .softmax = softmax,
    .softmax_again = softmax_again,
    .softmax_back = softmax_back,
    .scale_rows = scale_rows,
    .row_dots = row_dots,
    .swiglu = swiglu,
    .swiglu_back = swiglu_back,
    .cross_entropy = cross_entropy,
    .add = add,
    .squares = squares,
    .adamw = adamw,
};
