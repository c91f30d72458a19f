/* SPDX-License-Identifier: Apache-2.0 */
/* A small test harness. A test program is
 *
 *     static void adds(void) { CHECK_INT(1 + 1, 2); }
 *     int main(void) { RUN(adds); return test_summary(); }
 *
 * A failed check prints its location and values; the program continues with the
 * next test. test_summary() prints "N passed, N failed" and returns the exit
 * status. With LONGHAUL_TEST_TIMES in the environment RUN prints the processor
 * time of each test. */
#ifndef TEST_H
#define TEST_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    int passed, failed;
    bool bad; /* the running test has failed */
} test_state;

#define CHECK_MSG(ok, ...)                                                     \
    do {                                                                       \
        if (!(ok)) {                                                           \
            test_state.bad = true;                                             \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                    \
            fprintf(stderr, __VA_ARGS__);                                      \
            fputc('\n', stderr);                                               \
        }                                                                      \
    } while (0)

#define CHECK(condition) CHECK_MSG(condition, "not true: %s", #condition)

#define CHECK_INT(got, want)                                                   \
    do {                                                                       \
        int64_t test_got = (int64_t)(got), test_want = (int64_t)(want);        \
        CHECK_MSG(test_got == test_want, "%s is %" PRId64 ", not %" PRId64,    \
                  #got, test_got, test_want);                                  \
    } while (0)

#define CHECK_STR(got, want)                                                   \
    do {                                                                       \
        const char *test_got = (got), *test_want = (want);                     \
        CHECK_MSG(test_got &&strcmp(test_got, test_want) == 0,                 \
                  "%s is\n  '%s', not\n  '%s'", #got,                          \
                  test_got ? test_got : "(null)", test_want);                  \
    } while (0)

/* Checks that `got` contains `part`. */
#define CHECK_HAS(got, part)                                                   \
    do {                                                                       \
        const char *test_got = (got);                                          \
        CHECK_MSG(test_got &&strstr(test_got, (part)),                         \
                  "%s is\n  '%s', without\n  '%s'", #got,                      \
                  test_got ? test_got : "(null)", (part));                     \
    } while (0)

#define CHECK_NEAR(got, want, tolerance)                                       \
    do {                                                                       \
        double test_got = (got), test_want = (want);                           \
        CHECK_MSG(fabs(test_got - test_want) <= (tolerance),                   \
                  "%s is %.9g, not %.9g +- %.3g", #got, test_got, test_want,   \
                  (double)(tolerance));                                        \
    } while (0)

/* Checks that `call` returns LH_OK; `error` is the lh_error that it fills. */
#define CHECK_OK(call, error)                                                  \
    CHECK_MSG((call) == 0, "%s failed: %s", #call, (error).text)

#define RUN(test)                                                              \
    do {                                                                       \
        clock_t test_begin = clock();                                          \
        test_state.bad = false;                                                \
        test();                                                                \
        if (getenv("LONGHAUL_TEST_TIMES"))                                     \
            printf("%8.2f s %s\n",                                             \
                   (double)(clock() - test_begin) / CLOCKS_PER_SEC, #test);    \
        if (test_state.bad) {                                                  \
            test_state.failed++;                                               \
            fprintf(stderr, "FAILED %s\n", #test);                             \
        } else {                                                               \
            test_state.passed++;                                               \
        }                                                                      \
    } while (0)

/* Prints the totals; returns the program's exit status. */
static inline int test_summary(void)
{
    printf("%d passed, %d failed\n", test_state.passed, test_state.failed);
    return test_state.failed != 0;
}

#endif
