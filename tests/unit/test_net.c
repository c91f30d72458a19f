/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite over the transports that need nothing but the program,
 * and what is particular to each. */
#define _GNU_SOURCE
#include "net_suite.h"
#include "test.h"

#include <stdlib.h>
#include <time.h>

static const net_transport transports[] = {
    {"inproc", lhi_inproc_run, true},
};

static void free_results(lhi_rank_result *results, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(results[i].text);
}

static void run_case(const net_transport *t, const net_case *c)
{
    lhi_rank_result results[8] = {{0}};
    lh_error err = {0};
    char word[] = "hello from";
    lh_status status = t->run(c->n_ranks, c->n_links, c->links, c->rank_main,
                              word, results, &err);
    if (!c->fails) {
        CHECK_MSG(status == LH_OK, "%s, %s: %s", t->name, c->name, err.text);
    } else {
        CHECK_MSG(status != LH_OK && strstr(err.text, c->fails),
                  "%s, %s: '%s', without '%s'", t->name, c->name, err.text,
                  c->fails);
    }
    if (strcmp(c->name, "hands back") == 0 && status == LH_OK) {
        CHECK_STR(results[0].text, "hello from 0");
        CHECK_STR(results[1].text, "hello from 1");
        CHECK_INT(results[1].size, 300000);
        CHECK_INT(results[2].size, 20);
    }
    free_results(results, 8);
}

static void conforms(void)
{
    for (size_t t = 0; t < sizeof transports / sizeof transports[0]; t++) {
        for (unsigned i = 0; i < n_net_cases; i++) {
            int64_t start_ns = lhi_net_now();
            run_case(&transports[t], &net_cases[i]);
            if (getenv("TEST_NET_VERBOSE"))
                printf("%s %s %.3f s\n", transports[t].name, net_cases[i].name,
                       (double)(lhi_net_now() - start_ns) * 1e-9);
        }
    }
}

static void refuses(void)
{
    lh_error err = {0};
    lhi_net *nets[2];
    const lhi_net_link bad[] = {{0, 0, 0}, {-1, 0, 0}};
    CHECK_INT(lhi_net_inproc(0, 0, NULL, nets, &err), LH_EINVAL);
    CHECK_HAS(err.text, "0 ranks");
    CHECK_INT(lhi_net_inproc(2, 2, bad, nets, &err), LH_EINVAL);
    CHECK_HAS(err.text, "emulated link 1");
    const lhi_net_link nan_rate = {0, 0, NAN};
    CHECK_INT(lhi_net_inproc(2, 1, &nan_rate, nets, &err), LH_EINVAL);
}

/* A wait uses no processor time. */
static void sleeps(void)
{
    lhi_net *nets[2];
    lh_error err = {0};
    const lhi_net_link slow = {300000000, 0, 0};
    CHECK_OK(lhi_net_inproc(2, 1, &slow, nets, &err), err);
    lhi_net_op send = {0}, receive = {0};
    clock_t used = clock();
    int64_t start_ns = lhi_net_now();
    CHECK_OK(lhi_net_send(nets[0], 1, 0, NULL, 0, 0, start_ns, LHI_NET_NO_TURN,
                          &send, &err),
             err);
    CHECK_OK(lhi_net_receive(nets[1], 0, 0, NULL, 0, &receive, &err), err);
    CHECK_OK(lhi_net_wait(nets[1], &receive, 0, &err), err);
    CHECK(lhi_net_now() - start_ns >= 300000000);
    CHECK(clock() - used < CLOCKS_PER_SEC / 20);
    lhi_net_close(nets[0]);
    lhi_net_close(nets[1]);
}

int main(void)
{
    RUN(conforms);
    RUN(refuses);
    RUN(sleeps);
    return test_summary();
}
