/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the conformance suite over a transport. */
#ifndef NET_CONFORM_H
#define NET_CONFORM_H

#include "net_suite.h"
#include "test.h"

#include "base/realtime.h"

#include <stdlib.h>

/* Runs one case and checks the run's status and error text. */
static inline void net_conform_case(const net_transport *t, const net_case *c)
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
    if (strcmp(c->name, "hands back half") == 0)
        CHECK(results[1].text && strcmp(results[1].text, "hello from 1") == 0);
    for (int i = 0; i < 8; i++)
        free(results[i].text);
}

/* Runs all cases. With TEST_NET_VERBOSE in the environment, prints each case's
 * duration. */
static inline void net_conform(const net_transport *t)
{
    for (unsigned i = 0; i < n_net_cases; i++) {
        int64_t start_ns = lhi_now_ns();
        net_conform_case(t, &net_cases[i]);
        if (getenv("TEST_NET_VERBOSE"))
            printf("%s %s %.3f s\n", t->name, net_cases[i].name,
                   (double)(lhi_now_ns() - start_ns) * 1e-9);
    }
}

#endif
