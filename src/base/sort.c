/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

typedef struct sorting {
    size_t size;
    int (*compare)(const void *a, const void *b);
} sorting;

static void swap(char *a, char *b, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char c = a[i];
        a[i] = b[i];
        b[i] = c;
    }
}

static void insert_all(const sorting *s, char *base, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (char *p = base + i * s->size;
             p > base && s->compare(p - s->size, p) > 0; p -= s->size)
            swap(p - s->size, p, s->size);
}

/* from[0..n/2) and from[n/2..n) are sorted; to[0..n) becomes so. */
static void merge(const sorting *s, const char *from, size_t n, char *to)
{
    const char *a = from, *b = from + n / 2 * s->size;
    const char *a_end = b, *b_end = from + n * s->size;
    for (; n > 0; n--, to += s->size) {
        const char **next =
            b == b_end || (a < a_end && s->compare(a, b) <= 0) ? &a : &b;
        memcpy(to, *next, s->size);
        *next += s->size;
    }
}

static void sort_halves(const sorting *s, char *base, size_t n, char *copy)
{
    size_t half = n / 2;
    if (n < 2)
        return;
    sort_halves(s, base, half, copy);
    sort_halves(s, base + half * s->size, n - half, copy);
    memcpy(copy, base, n * s->size);
    merge(s, copy, n, base);
}

void lhi_sort(void *base, size_t n, size_t size,
              int (*compare)(const void *a, const void *b))
{
    sorting s = {size, compare};
    if (n < 2)
        return;
    char *copy = calloc(n, size);
    if (copy)
        sort_halves(&s, base, n, copy);
    else
        insert_all(&s, base, n);
    free(copy);
}
