/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/layer_pattern.h"

#include <string.h>

/* --- lists ---------------------------------------------------------------- */

enum { MAX_DEPTH = 32 };

/* The parser's state: is[0..n-1] are the numbers so far, at most `most`. */
typedef struct list_parser {
    const char *at;
    bool *is;
    uint32_t n, most, deep;
} list_parser;

/* Reads a decimal number at the parser's position into *out and advances past
 * it. Returns false if there is none or it is too large. */
static bool read_number(list_parser *l, uint32_t *out)
{
    uint32_t number = 0;
    if (*l->at < '0' || *l->at > '9')
        return false;
    for (; *l->at >= '0' && *l->at <= '9'; l->at++) {
        if (number > 1 << 24)
            return false;
        number = 10 * number + (uint32_t)(*l->at - '0');
    }
    *out = number;
    return true;
}

/* Reads a list such as "[0,1,1]" and appends its entries. Returns false if it
 * is invalid or too long. */
static bool read_list(list_parser *l)
{
    uint32_t one;
    for (l->at++; *l->at != ']'; l->at += *l->at == ',') {
        if (!read_number(l, &one) || one > 1 || l->n == l->most ||
            (*l->at != ',' && *l->at != ']'))
            return false;
        l->is[l->n++] = one == 1;
    }
    l->at++;
    return true;
}

/* Repeats the parsed numbers from index `first` on until they occur `times`
 * times; 0 removes them. Returns false if they exceed the list's capacity. */
static bool repeat_numbers(list_parser *l, uint32_t first, uint32_t times)
{
    const uint32_t len = l->n - first;
    if ((uint64_t)len * times > l->most - first)
        return false;
    for (uint32_t i = 1; i < times && len; i++)
        memcpy(l->is + first + (size_t)i * len, l->is + first,
               len * sizeof *l->is);
    l->n = first + len * times;
    return true;
}

static bool read_sum(list_parser *l);

/* Reads a list or a sum in parentheses, repeated by any number of `*N` after
 * it, and appends its entries. Returns false if the text is invalid. */
static bool read_repeated(list_parser *l)
{
    const uint32_t first = l->n;
    uint32_t times;
    if (*l->at == '[') {
        if (!read_list(l))
            return false;
    } else if (*l->at == '(' && l->deep++ < MAX_DEPTH) {
        l->at++;
        if (!read_sum(l) || *l->at++ != ')')
            return false;
        l->deep--;
    } else {
        return false;
    }
    while (*l->at == '*') {
        l->at++;
        if (!read_number(l, &times) || !repeat_numbers(l, first, times))
            return false;
    }
    return true;
}

/* Reads lists joined by `+` and appends their entries. Returns false if the
 * text is invalid. */
static bool read_sum(list_parser *l)
{
    if (!read_repeated(l))
        return false;
    while (*l->at == '+') {
        l->at++;
        if (!read_repeated(l))
            return false;
    }
    return true;
}

bool lhi_layer_pattern_read(const char *text, lhi_pattern_number number,
                            bool *is, uint32_t n)
{
    list_parser l = {.at = text, .is = is, .most = n};
    uint32_t every;
    if (strchr(text, '['))
        return read_sum(&l) && !*l.at && l.n == n;
    if (!read_number(&l, &every) || *l.at || every == 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        is[i] = number == LHI_PATTERN_MULTIPLES
                    ? i % every == 0
                    : (i % every == every - 1) == (number == LHI_PATTERN_LAST);
    return true;
}

/* --- model keys ----------------------------------------------------------- */

/* Checks whether, from layer `first` on, exactly the layers with index %
 * interval == phase are set in `is`. */
static bool is_set_at_interval(const bool *is, uint32_t layers, uint32_t first,
                               uint32_t interval, uint32_t phase)
{
    for (uint32_t i = first; i < layers; i++)
        if (is[i] != (i % interval == phase))
            return false;
    return true;
}

bool lhi_layer_pattern_set_experts(const bool *is, lhi_arena *mem,
                                   lh_model *model)
{
    const uint32_t n = model->layers;
    uint32_t first = 0, second, listed = 0;
    while (first < n && !is[first])
        first++;
    for (second = first + 1; second < n && !is[second];)
        second++;
    model->dense_layers = first;
    if (second < n && is_set_at_interval(is, n, first, second - first,
                                         first % (second - first))) {
        model->moe_interval = second - first;
        model->moe_phase = first % model->moe_interval;
        if (is_set_at_interval(is, n, 0, model->moe_interval, model->moe_phase))
            model->dense_layers = 0;
        return true;
    }
    uint32_t *list = LHI_NEW(mem, uint32_t, n);
    if (!list)
        return false;
    for (uint32_t i = first; i < n; i++)
        if (!is[i])
            list[listed++] = i;
    model->n_dense_list = listed;
    model->dense_list = listed ? list : NULL;
    return true;
}

/* Checks whether `is`, the flags of layers with windows, is false exactly at
 * every n-th layer (i % n == n - 1) from layer `first` on; n = 0: nowhere. */
static bool is_full_at_interval(const bool *is, uint32_t layers, uint32_t first,
                                uint32_t n)
{
    for (uint32_t i = first; i < layers; i++)
        if (is[i] == (n && i % n == n - 1))
            return false;
    return true;
}

/* Finds n such that `is`, the flags of layers with windows, is false exactly at
 * every n-th layer (i % n == n - 1) from layer `first` on; n = 0: nowhere.
 * Returns false if there is no such n. */
static bool find_full_interval(const bool *is, uint32_t layers, uint32_t first,
                               uint32_t *n)
{
    uint32_t full = first;
    *n = 0;
    while (full < layers && is[full])
        full++;
    if (full == layers)
        return true;
    for (*n = 2; *n <= full + 1; ++*n)
        if ((full + 1) % *n == 0 && is_full_at_interval(is, layers, first, *n))
            return true;
    return false;
}

bool lhi_layer_pattern_set_linear(const bool *is, lh_model *model)
{
    return find_full_interval(is, model->layers, 0, &model->full_interval);
}

bool lhi_layer_pattern_set_windows(const bool *is, uint32_t window,
                                   lh_model *model)
{
    const uint32_t layers = model->layers;
    uint32_t first = 0, n;
    while (first < layers && !is[first])
        first++;
    if (first == layers)
        return true; /* every layer attends to all tokens */
    if (!find_full_interval(is, layers, first, &n))
        return false;
    model->sliding_window = window;
    /* Omits the first layer if the interval alone describes the pattern. */
    model->window_first_layer =
        is_full_at_interval(is, layers, 0, n) ? 0 : first;
    model->full_interval = n;
    return true;
}

bool lhi_layer_pattern_set_no_rope(const bool *is, lh_model *model)
{
    uint32_t first = 0;
    while (first < model->layers && !is[first])
        first++;
    if (first == model->layers)
        return true; /* every layer has positions */
    if (!is_set_at_interval(is, model->layers, 0, first + 1, first))
        return false;
    model->no_rope_interval = first + 1;
    return true;
}
