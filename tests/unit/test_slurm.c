/* SPDX-License-Identifier: Apache-2.0 */
/* Rank parameters from srun's environment. */
#define _GNU_SOURCE
#include "runtime/transport/slurm.h"
#include "test.h"

#include <stdlib.h>

static void first_nodes(void)
{
    static const struct {
        const char *list, *first;
    } cases[] = {
        {"alone", "alone"},
        {"a,b,c", "a"},
        {"n[1-3]", "n1"},
        {"n[07-12,20],m1", "n07"},
        {"n[5,9-11]", "n5"},
        {"n[3]", "n3"},
        {"r[1-2]n[03-04]", "r1n03"},
        {"n[1-2]-ib,x", "n1-ib"},
        {"n-1.site.org,n-2", "n-1.site.org"},
    };
    static const char *const bad[] = {"", ",a", "n[", "n[]", "n[1-3", "[,]"};
    char name[16];
    lh_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(lhi_slurm_first_node(cases[i].list, name, sizeof name, &err),
                 err);
        CHECK_STR(name, cases[i].first);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(name, sizeof name, "before");
        CHECK_INT(lhi_slurm_first_node(bad[i], name, sizeof name, &err),
                  LH_EINVAL);
        CHECK_HAS(err.text, "LONGHAUL_HOST");
        CHECK_STR(name, "before");
    }
    /* The longest name that fits, and one longer. */
    CHECK_OK(lhi_slurm_first_node("n23456789012345", name, sizeof name, &err),
             err);
    CHECK_INT(lhi_slurm_first_node("n234567890123456", name, sizeof name, &err),
              LH_EINVAL);
    char longest[600];
    memset(longest, 'n', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    longest[300] = '[';
    longest[590] = ']';
    char large[1000];
    CHECK_INT(lhi_slurm_first_node(longest, large, sizeof large, &err),
              LH_EINVAL);
}

/* Sets variables to values, up to NULL; a NULL value unsets. */
static void set(const char *const *pairs)
{
    static const char *const all[] = {"SLURM_PROCID",
                                      "SLURM_STEP_NUM_TASKS",
                                      "SLURM_JOB_ID",
                                      "SLURM_STEP_ID",
                                      "SLURM_STEP_NUM_NODES",
                                      "SLURM_STEP_NODELIST",
                                      "SLURM_STEP_RESV_PORTS",
                                      "SLURMD_NODENAME",
                                      "LONGHAUL_SECRET",
                                      "LONGHAUL_HOST",
                                      "LONGHAUL_PORT",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "PMIX_RANK",
                                      "OMPI_COMM_WORLD_SIZE"};
    static const char *const step[] = {"SLURM_PROCID",
                                       "2",
                                       "SLURM_STEP_NUM_TASKS",
                                       "4",
                                       "SLURM_JOB_ID",
                                       "123",
                                       "SLURM_STEP_ID",
                                       "5",
                                       "SLURM_STEP_NUM_NODES",
                                       "2",
                                       "SLURM_STEP_NODELIST",
                                       "far[08-09]",
                                       "SLURMD_NODENAME",
                                       "far09",
                                       "LONGHAUL_SECRET",
                                       "0123456789abcdef",
                                       NULL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unsetenv(all[i]);
    for (int k = 0; k < 2; k++)
        for (const char *const *p = k ? pairs : step; p && *p; p += 2)
            if (p[1])
                setenv(p[0], p[1], 1);
            else
                unsetenv(p[0]);
}
#define SET(...) set((const char *const[]){__VA_ARGS__, NULL})

static void finds_rank_0(void)
{
    lhi_launch_settings s;
    lh_error err;
    set(NULL);
    CHECK(lhi_slurm_is_launched());
    CHECK_OK(lhi_slurm_read_environment(&s, &err), err);
    CHECK_INT(s.rank, 2);
    CHECK_INT(s.n_ranks, 4);
    CHECK_STR(s.host, "far08");
    CHECK_STR(s.job, "slurm 123.5");
    CHECK_STR(s.secret, "0123456789abcdef");
    CHECK(s.port >= 20000 && s.port < 30000);
    uint16_t port = s.port;
    /* Another step, and another job. */
    SET("SLURM_STEP_ID", "6");
    CHECK_OK(lhi_slurm_read_environment(&s, &err), err);
    CHECK(s.port != port && strcmp(s.job, "slurm 123.6") == 0);
    SET("SLURM_JOB_ID", "124");
    CHECK_OK(lhi_slurm_read_environment(&s, &err), err);
    CHECK(s.port != port && s.port >= 20000 && s.port < 30000);

    SET("SLURM_STEP_NUM_NODES", "1");
    CHECK_OK(lhi_slurm_read_environment(&s, &err), err);
    CHECK_STR(s.host, "127.0.0.1");
    SET("SLURM_STEP_RESV_PORTS", "12000-12003");
    CHECK_OK(lhi_slurm_read_environment(&s, &err), err);
    CHECK_INT(s.port, 12000);
    SET("LONGHAUL_HOST", "10.0.0.7", "LONGHAUL_PORT", "65535",
        "SLURM_STEP_RESV_PORTS", "12000-12003", "SLURM_STEP_NODELIST", NULL);
    CHECK_OK(lhi_slurm_read_environment(&s, &err), err);
    CHECK_STR(s.host, "10.0.0.7");
    CHECK_INT(s.port, 65535);
}

static void leaves_others_to_mpi(void)
{
    /* Processes that mpirun starts through srun are not ranks. */
    SET("OMPI_COMM_WORLD_SIZE", "4");
    CHECK(!lhi_slurm_is_launched());
    SET("PMI_RANK", "3", "PMI_SIZE", "8");
    CHECK(!lhi_slurm_is_launched());
    /* With a secret, srun --mpi=pmi2 and pmix are not used. */
    SET("PMI_RANK", "2", "PMI_SIZE", "4");
    CHECK(lhi_slurm_is_launched());
    SET("PMIX_RANK", "2");
    CHECK(lhi_slurm_is_launched());
    SET("PMIX_RANK", "2", "LONGHAUL_SECRET", NULL);
    CHECK(!lhi_slurm_is_launched());
    SET("LONGHAUL_SECRET", NULL);
    CHECK(lhi_slurm_is_launched());
    /* The batch script itself is not a task of a step. */
    SET("SLURM_STEP_NUM_TASKS", NULL);
    CHECK(!lhi_slurm_is_launched());
}

static void says_what_is_wrong(void)
{
    static const struct {
        const char *name, *value, *says;
    } cases[] = {
        {"LONGHAUL_SECRET", NULL, "export LONGHAUL_SECRET=$(openssl rand"},
        {"LONGHAUL_SECRET", "0123456789abcde", "at least 16 characters"},
        {"SLURM_PROCID", "4", "do not identify a rank"},
        {"SLURM_PROCID", "-1", "do not identify a rank"},
        {"SLURM_PROCID", "2x", "do not identify a rank"},
        {"SLURM_STEP_NUM_TASKS", "4097", "at most 4096"},
        {"SLURM_STEP_NUM_TASKS", "99999999999999999999", "at most 4096"},
        {"SLURM_JOB_ID", NULL, "SLURM_JOB_ID"},
        {"SLURM_STEP_ID", "", "SLURM_STEP_ID"},
        {"SLURM_STEP_NODELIST", NULL, "LONGHAUL_HOST"},
        {"SLURM_STEP_NODELIST", "n[1", "cannot parse the first node of 'n[1'"},
        {"LONGHAUL_PORT", "0", "'0' is not a port"},
        {"LONGHAUL_PORT", "65536", "'65536' is not a port"},
        {"LONGHAUL_PORT", "1-2", "'1-2' is not a port"},
    };
    const lhi_launch_settings before = {.rank = 77, .host = "before"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lhi_launch_settings s = before;
        lh_error err;
        SET(cases[i].name, cases[i].value);
        lh_status status = lhi_slurm_read_environment(&s, &err);
        CHECK(status == LH_OK || memcmp(&s, &before, sizeof s) == 0);
        if (status == LH_OK)
            status = lhi_launch_check_secret(&s, "srun", &err);
        CHECK_INT(status, LH_EINVAL);
        CHECK_HAS(err.text, cases[i].says);
    }
}

/* Rank 0 must be on the node where the other ranks expect it. */
static void rank_0_is_where_others_look(void)
{
    lhi_launch_settings s;
    lh_error err;
    SET("SLURM_PROCID", "0");
    CHECK_INT(lhi_slurm_read_environment(&s, &err), LH_EINVAL);
    CHECK_HAS(err.text, "rank 0 runs on node far09, not on far08");
    SET("SLURM_PROCID", "0", "SLURM_STEP_NODELIST", "localhost,far",
        "SLURMD_NODENAME", "localhost");
    CHECK_INT(lhi_slurm_read_environment(&s, &err), LH_EINVAL);
    CHECK_HAS(err.text,
              "node localhost resolves its own name to a loopback address");
    SET("SLURM_PROCID", "0", "SLURM_STEP_NODELIST", "192.0.2.[1-2]",
        "SLURMD_NODENAME", "192.0.2.1");
    CHECK_OK(lhi_slurm_read_environment(&s, &err), err);
    CHECK_STR(s.host, "192.0.2.1");
}

int main(void)
{
    RUN(first_nodes);
    RUN(finds_rank_0);
    RUN(leaves_others_to_mpi);
    RUN(says_what_is_wrong);
    RUN(rank_0_is_where_others_look);
    return test_summary();
}
