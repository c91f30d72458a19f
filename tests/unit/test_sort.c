/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting: correct order, and stable. */
#include "test.h"

#include "base/random.h"
#include "base/sort.h"

/* A key and its original position. */
typedef struct item {
    uint32_t key, was;
    char ballast[13];
} item;

static int by_key(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static void sort_some(uint32_t n, uint32_t keys, lhi_random *random)
{
    item items[200] = {0};
    for (uint32_t i = 0; i < n; i++)
        items[i] = (item){.key = lhi_random_below(random, keys), .was = i};
    lhi_sort(items, n, sizeof *items, by_key);
    for (uint32_t i = 1; i < n; i++)
        CHECK(items[i - 1].key < items[i].key ||
              (items[i - 1].key == items[i].key &&
               items[i - 1].was < items[i].was));
}

static void equals_stay(void)
{
    lhi_random random = {7};
    for (uint32_t n = 0; n <= 200; n++)
        for (uint32_t keys = 1; keys <= 16; keys *= 4)
            sort_some(n, keys, &random);
}

static void medians(void)
{
    int64_t odd[] = {5, -1, 9}, even[] = {4, 1, 9, 7};
    int64_t far[] = {INT64_MAX, INT64_MAX - 2};
    CHECK_INT(lhi_median_ns(odd, 3), 5);
    CHECK_INT(lhi_median_ns(even, 4), 5);
    CHECK_INT(lhi_median_ns(far, 2), INT64_MAX - 1);
    CHECK_INT(lhi_median_ns(odd, 0), 0);
}

int main(void)
{
    RUN(medians);
    RUN(equals_stay);
    return test_summary();
}
