/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a run that restarts, beside a list of its entries: random
 * switches, notices and restarts, and writers that are killed. */
#define _GNU_SOURCE
#include "runtime/engine/run_journal.h"
#include "test.h"

#include <longhaul/experimental/adapt.h>
#include <unistd.h>

enum { MOST = 64, N_CASES = 200 };

static const lh_exec initial;

/* --- expected entries ----------------------------------------------------- */

typedef struct expected {
    uint32_t n;
    struct {
        uint64_t step;
        bool is_switch, is_refused;
        char to[16];
    } entries[MOST];
} expected;

static void expect(expected *all, uint64_t step, bool is_switch, bool refused,
                   const char *to)
{
    all->entries[all->n].step = step;
    all->entries[all->n].is_switch = is_switch;
    all->entries[all->n].is_refused = refused;
    snprintf(all->entries[all->n].to, sizeof all->entries->to, "%s", to);
    all->n++;
}

/* Drops the entries of `step` and later steps; true: the last switch that
 * remains left the initial schedule. */
static bool drop(expected *all, uint64_t step)
{
    uint32_t n = 0;
    bool has_left = false;
    for (uint32_t i = 0; i < all->n; i++) {
        if (all->entries[i].step >= step)
            continue;
        all->entries[n++] = all->entries[i];
        if (all->entries[i].is_switch && !all->entries[i].is_refused)
            has_left = strcmp(all->entries[i].to, lh_adapt_candidate(0)) != 0;
    }
    all->n = n;
    return has_left;
}

/* --- journal -------------------------------------------------------------- */

static void add_switch(int journal, uint64_t step, const char *to, bool refused)
{
    lh_error err;
    lhi_switch row = {.step = step, .is_refused = refused};
    snprintf(row.to, sizeof row.to, "%s", to);
    CHECK_OK(lhi_journal_add_switch(journal, &row, &err), err);
}

static void add_notice(int journal, uint64_t step)
{
    lh_error err;
    lhi_adapt_notice row = {.notice.step = step};
    CHECK_OK(lhi_journal_add_notice(journal, &row, &err), err);
}

static bool begin_attempt(int journal, uint64_t step)
{
    lh_error err;
    lhi_switch back;
    bool switches = false;
    CHECK_OK(lhi_journal_begin_attempt(journal, step, &initial, &back,
                                       &switches, &err),
             err);
    CHECK_INT(back.step, step);
    CHECK_STR(back.to, lh_adapt_candidate(0));
    return switches;
}

static void check_entries(int journal, const expected *all)
{
    lh_error err;
    lhi_journal_entries found;
    lhi_switch row;
    lhi_adapt_notice notice;
    uint32_t n_switches = 0, n_notices = 0;
    CHECK_OK(lhi_journal_read(journal, &found, &err), err);
    for (uint32_t i = 0; i < all->n; i++)
        n_switches += all->entries[i].is_switch;
    CHECK_INT(found.n_switches, n_switches);
    CHECK_INT(found.n_notices, all->n - n_switches);
    n_switches = 0;
    for (uint32_t i = 0; i < all->n && !test_state.bad; i++)
        if (all->entries[i].is_switch) {
            CHECK_OK(lhi_switch_read((unsigned char *)found.switches.data +
                                         n_switches++ * LHI_SWITCH_BYTES,
                                     LHI_SWITCH_BYTES, &row, &err),
                     err);
            CHECK_INT(row.step, all->entries[i].step);
            CHECK_STR(row.to, all->entries[i].to);
        } else {
            CHECK_OK(
                lhi_adapt_notice_read((unsigned char *)found.notices.data +
                                          n_notices++ * LHI_ADAPT_NOTICE_BYTES,
                                      LHI_ADAPT_NOTICE_BYTES, &notice, &err),
                err);
            CHECK_INT(notice.notice.step, all->entries[i].step);
        }
    lhi_text_fini(&found.switches);
    lhi_text_fini(&found.notices);
}

/* --- cases ---------------------------------------------------------------- */

static uint64_t chance;

static uint32_t draw(uint32_t n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(chance >> 33) % n;
}

/* Writes the start of an entry, as a writer that is killed does. */
static void add_incomplete(int journal)
{
    unsigned char bytes[200] = {0};
    memset(bytes, 0xff, sizeof bytes);
    const size_t n = 1 + draw(sizeof bytes - 1);
    CHECK_INT(lseek(journal, 0, SEEK_END) >= 0, 1);
    CHECK_INT(write(journal, bytes, n), n);
}

static void random_runs(void)
{
    static const char *const names[] = {"1f1b", "gpipe"};
    lh_error err;
    for (uint32_t c = 0; c < N_CASES && !test_state.bad; c++) {
        int journal;
        expected all = {0};
        uint64_t step = draw(3);
        chance = c + 1;
        CHECK_OK(lhi_journal_make(&journal, &err), err);
        CHECK(!begin_attempt(journal, step));
        for (uint32_t i = 0; i < 40 && all.n < MOST - 2; i++) {
            const bool refused = draw(3) == 0;
            const uint32_t name = draw(3);
            const char *to = name < 2 ? names[name] : lh_adapt_candidate(0);
            switch (draw(5)) {
            case 0:
                add_switch(journal, step, to, refused);
                expect(&all, step, true, refused, to);
                break;
            case 1:
                add_notice(journal, step);
                expect(&all, step, false, false, "");
                break;
            case 2: /* restarts */
                if (draw(2))
                    add_incomplete(journal);
                check_entries(journal, &all);
                step -= draw((uint32_t)step + 1);
                const bool has_left = drop(&all, step);
                CHECK_INT(begin_attempt(journal, step), has_left);
                if (has_left)
                    expect(&all, step, true, false, lh_adapt_candidate(0));
                break;
            default:
                step++;
            }
        }
        check_entries(journal, &all);
        close(journal);
    }
}

int main(void)
{
    RUN(random_runs);
    return test_summary();
}
