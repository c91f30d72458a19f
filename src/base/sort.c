/* SPDX-License-Identifier: Apache-2.0 */
/* In-place merge sort by rotations: Dudzinski and Dydek, On a Stable Storage
 * Merging Algorithm, Information Processing Letters 12(1), 1981. */
#include "base/sort.h"

#include <stdbool.h>

/* The array to sort and its comparison function. */
typedef struct sorting {
    char *base;
    size_t size;
    int (*compare)(const void *a, const void *b);
} sorting;

/* Compares the items at indices `i` and `k` by the caller's function: negative,
 * 0 or positive. */
static int compare_at(const sorting *s, size_t i, size_t k)
{
    return s->compare(s->base + i * s->size, s->base + k * s->size);
}

/* Exchanges the items at indices `i` and `k`. */
static void swap_items(const sorting *s, size_t i, size_t k)
{
    char *a = s->base + i * s->size, *b = s->base + k * s->size;
    for (size_t n = 0; n < s->size; n++) {
        char c = a[n];
        a[n] = b[n];
        b[n] = c;
    }
}

/* Reverses the items' order in [from, to). */
static void reverse_range(const sorting *s, size_t from, size_t to)
{
    for (; from + 1 < to; from++, to--)
        swap_items(s, from, to - 1);
}

/* Returns the index of the first item of the sorted range [from, to) that sorts
 * after item `key`; with `or_equal`, of the first that does not sort before it.
 */
static size_t find_first_after(const sorting *s, size_t from, size_t to,
                               size_t key, bool or_equal)
{
    while (from < to) {
        size_t at = from + (to - from) / 2;
        int order = compare_at(s, at, key);
        if (order > 0 || (order == 0 && or_equal))
            to = at;
        else
            from = at + 1;
    }
    return from;
}

/* Merges the sorted ranges [from, mid) and [mid, to): halves the longer one,
 * finds the matching split in the other, and rotates the part between. */
static void merge_ranges(const sorting *s, size_t from, size_t mid, size_t to)
{
    while (from < mid && mid < to) {
        size_t a, b;
        if (to - from == 2) {
            if (compare_at(s, from, mid) > 0)
                swap_items(s, from, mid);
            return;
        }
        if (mid - from > to - mid) {
            a = from + (mid - from) / 2;
            b = find_first_after(s, mid, to, a, true);
        } else {
            b = mid + (to - mid) / 2;
            a = find_first_after(s, from, mid, b, false);
        }
        reverse_range(s, a, mid);
        reverse_range(s, mid, b);
        reverse_range(s, a, b);
        merge_ranges(s, from, a, a + (b - mid));
        from = a + (b - mid);
        mid = b;
    }
}

/* Sorts the items in [from, to) by recursive halving and merging. */
static void sort_range(const sorting *s, size_t from, size_t to)
{
    size_t mid = from + (to - from) / 2;
    if (to - from < 2)
        return;
    sort_range(s, from, mid);
    sort_range(s, mid, to);
    merge_ranges(s, from, mid, to);
}

void lhi_sort(void *base, size_t n, size_t size,
              int (*compare)(const void *a, const void *b))
{
    sorting s = {base, size, compare};
    sort_range(&s, 0, n);
}

/* Compares two int64_t times, for qsort() in ascending order. */
static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int64_t lhi_median_ns(int64_t *ns, size_t n)
{
    if (n == 0)
        return 0;
    lhi_sort(ns, n, sizeof *ns, compare_times);
    int64_t upper = ns[n / 2];
    return n % 2 ? upper : ns[n / 2 - 1] + (upper - ns[n / 2 - 1]) / 2;
}
