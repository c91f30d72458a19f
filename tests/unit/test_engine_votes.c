/* SPDX-License-Identifier: Apache-2.0 */
/* Proposed schedules and votes, with one rank played by the test: rejections,
 * malformed messages, commands out of order. */
#define _GNU_SOURCE
#include "runtime/engine/job.h"
#include "scripted_switches.h"
#include "virtual_time.h"

#include <pthread.h>

/* --- a rank played by the test -------------------------------------------- */

enum { BYTES = 100 };

/* The engine as one rank, and the test as the other. */
typedef struct duel {
    lh_pipeline *pipeline;
    lh_exec *exec;
    lhi_job job;
    lhi_net *nets[2];
    uint32_t real; /* the engine's rank */
    pthread_t thread;
    lh_status status;
    lh_error err;
    script script;
} duel;

static void *real_rank(void *of)
{
    duel *d = of;
    lhi_rank_result result = {0};
    d->status = lhi_rank_run(d->nets[d->real], lhi_job_run_rank, &d->job,
                             &result, &d->err);
    free(result.text);
    return NULL;
}

static void await_all(duel *d)
{
    lh_error err;
    const lhi_net_group all = {2,    1 - d->real, NULL, LHI_NET_NO_LINK,
                               NULL, NULL};
    CHECK_OK(lhi_net_barrier(d->nets[1 - d->real], &all,
                             lhi_tag(LHI_TAG_BARRIER, 0, 0), NULL, &err),
             err);
}

static void begin_duel(duel *d, uint32_t real)
{
    lh_error err;
    *d = (duel){.real = real, .script = {.every = 1}};
    d->pipeline = two_devices(1);
    lh_schedule *s = schedule_by(d->pipeline, "1f1b");
    CHECK_OK(lh_exec_make(d->pipeline, s, NULL, &d->exec, &err), err);
    lh_schedule_free(s);
    d->script.own = all_schedules(d->pipeline, LH_RECEIVES_EARLY);
    d->job = (lhi_job){.pipeline = d->pipeline,
                       .exec = d->exec,
                       .grid = {.n_devices = 2,
                                .replicas = 1,
                                .context = 1,
                                .tensor = 1,
                                .expert = 1,
                                .expert_tensor = 1},
                       .o = {.size = sizeof d->job.o,
                             .steps = 3,
                             .transport = "inproc",
                             .message_bytes = BYTES,
                             .tolerated_lateness_ns = 1000000000,
                             .real_links = true,
                             .context = &d->script,
                             .reschedule = real ? NULL : next_schedule,
                             .switched = real ? NULL : told}};
    CHECK_OK(lhi_proposals_make(d->pipeline, &d->exec->options, NULL,
                                &d->job.proposals, &err),
             err);
    CHECK_OK(lhi_net_inproc(2, 0, NULL, d->nets, &err), err);
    CHECK_INT(pthread_create(&d->thread, NULL, real_rank, d), 0);
    await_all(d);
}

static void end_duel(duel *d)
{
    lhi_net_close(d->nets[1 - d->real]);
    pthread_join(d->thread, NULL);
    lhi_proposals_free(d->job.proposals);
    free_schedules(&d->script.own);
    lh_exec_free(d->exec);
    lh_pipeline_free(d->pipeline);
}

static lh_status send_bytes(duel *d, unsigned class, uint64_t step,
                            uint32_t number, const void *bytes, size_t size)
{
    lhi_net_op op = {0};
    lhi_net *net = d->nets[1 - d->real];
    LHI_TRY(lhi_net_send(net, d->real, lhi_tag(class, step, number), bytes,
                         size, LHI_NET_NO_LINK, 1, LHI_NET_NO_TURN, &op, NULL));
    return lhi_net_wait(net, &op, 0, NULL);
}

static lh_status hear_bytes(duel *d, unsigned class, uint64_t step,
                            uint32_t number, void *bytes, size_t size)
{
    lhi_net_op op = {0};
    lhi_net *net = d->nets[1 - d->real];
    LHI_TRY(lhi_net_receive(net, d->real, lhi_tag(class, step, number), bytes,
                            size, &op, NULL));
    return lhi_net_wait(net, &op, 0, NULL);
}

static lhi_command hear_command(duel *d, uint64_t turn)
{
    unsigned char bytes[LHI_COMMAND_BYTES] = {0};
    lhi_command c = {.what = LHI_COMMAND_END};
    lh_error err = {0};
    CHECK_INT(hear_bytes(d, LHI_TAG_COMMAND, turn, 0, bytes, sizeof bytes),
              LH_OK);
    CHECK_OK(lhi_command_read(bytes, sizeof bytes, &c, &err), err);
    return c;
}

static void tell_done(duel *d, uint64_t turn)
{
    unsigned char bytes[LHI_COMMAND_REPORT_BYTES];
    lhi_command_report_write(&(lhi_command_report){.loss = NAN}, bytes);
    send_bytes(d, LHI_TAG_DONE, turn, 0, bytes, sizeof bytes);
}

/* Does rank 1's work in a step. */
static void pass_along(duel *d, uint64_t step)
{
    unsigned char input[BYTES], output[BYTES] = {0};
    CHECK_INT(hear_bytes(d, LHI_TAG_MESSAGE, 2 * step, 1, input, sizeof input),
              LH_OK);
    CHECK_INT(
        send_bytes(d, LHI_TAG_MESSAGE, 2 * step, 2, output, sizeof output),
        LH_OK);
}

/* Receives that round's proposal, as rank 1. */
static lhi_proposal hear_proposal(duel *d, uint64_t round)
{
    unsigned char head[LHI_PROPOSAL_BYTES] = {0};
    lhi_proposal p = {0};
    lh_error err = {0};
    CHECK_INT(hear_bytes(d, LHI_TAG_SCHEDULE, round, 0, head, sizeof head),
              LH_OK);
    CHECK_OK(lhi_proposal_read(head, sizeof head, &p, &err), err);
    char *text = malloc(lhi_proposal_texts_size(&p.texts) + 1);
    CHECK_INT(hear_bytes(d, LHI_TAG_SCHEDULE, round, 1, text,
                         lhi_proposal_texts_size(&p.texts)),
              LH_OK);
    free(text);
    return p;
}

static void vote(duel *d, uint64_t round, const lhi_vote *v)
{
    unsigned char bytes[LHI_VOTE_BYTES];
    lhi_vote_write(v, bytes);
    CHECK_INT(send_bytes(d, LHI_TAG_VOTE, round, 0, bytes, sizeof bytes),
              LH_OK);
}

/* Rejects the first, accepts the second, rejects the third. */
static void one_rank_rejects_a_schedule(void)
{
    duel d;
    begin_duel(&d, 0);
    lhi_command c = hear_command(&d, 0);
    CHECK(c.what == LHI_COMMAND_SCHEDULE && c.proposes && c.step == 0);
    tell_done(&d, 0);
    for (uint32_t k = 0; k < 3; k++) {
        lhi_proposal p = hear_proposal(&d, k + 1);
        CHECK_INT(p.step, k);
        vote(&d, k + 1, &(lhi_vote){k % 2 == 0, k, "not this one"});
        c = hear_command(&d, 4 * (k + 1));
        CHECK(c.what == LHI_COMMAND_STEP && c.proposes == (k < 2));
        CHECK_INT(c.verdict, k % 2 ? LHI_VERDICT_GO : LHI_VERDICT_DROP);
        pass_along(&d, k);
        tell_done(&d, 4 * (k + 1));
    }
    c = hear_command(&d, 16);
    CHECK(c.what == LHI_COMMAND_END && c.verdict == LHI_VERDICT_NONE);
    unsigned char bytes[LHI_RECORD_COUNTS_BYTES + 3 * LHI_PASS_RECORD_BYTES] = {
        0};
    lhi_record_counts counts = {0};
    lh_schedule_order(d.script.own.all[1], 1, &counts.n_passes);
    lhi_record_counts_write(&counts, bytes);
    send_bytes(&d, LHI_TAG_RECORD, 17, 0, bytes, LHI_RECORD_COUNTS_BYTES);
    send_bytes(&d, LHI_TAG_RECORD, 18, 0, bytes + LHI_RECORD_COUNTS_BYTES,
               counts.n_passes * LHI_PASS_RECORD_BYTES);
    end_duel(&d);
    CHECK_OK(d.status, d.err);
    CHECK_INT(d.script.n_told, 3);
}

static void rank_1_fails_during_a_vote(void)
{
    static const char *const why[] = {"a vote whose refusal is 7",
                                      "a vote on step 9, not 0", "rank 1"};
    for (int i = 0; i < 3; i++) {
        duel d;
        unsigned char bytes[LHI_VOTE_BYTES];
        begin_duel(&d, 0);
        hear_command(&d, 0);
        hear_proposal(&d, 1);
        lhi_vote_write(&(lhi_vote){.step = i == 1 ? 9 : 0}, bytes);
        bytes[4] = i == 0 ? 7 : 0;
        if (i < 2)
            send_bytes(&d, LHI_TAG_VOTE, 1, 0, bytes, sizeof bytes);
        tell_done(&d, 0);
        end_duel(&d); /* leaves the run */
        CHECK_INT(d.status, LH_EIO);
        CHECK_HAS(d.err.text, why[i]);
    }
}

static void tell_command(duel *d, uint64_t turn, const lhi_command *c)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    lhi_command_write(c, bytes);
    send_bytes(d, LHI_TAG_COMMAND, turn, 0, bytes, sizeof bytes);
}

/* Sends a proposal; `paths` is the last text. */
static void propose(duel *d, uint64_t round, uint64_t step, const char *text,
                    const char *paths)
{
    char both[400];
    unsigned char head[LHI_PROPOSAL_BYTES];
    const lhi_proposal_texts texts = {(uint32_t)strlen(text), 0,
                                      (uint32_t)strlen(paths), 0};
    snprintf(both, sizeof both, "%s%s", text, paths);
    lhi_proposal_write(&(lhi_proposal){step, texts}, head);
    send_bytes(d, LHI_TAG_SCHEDULE, round, 0, head, sizeof head);
    if (texts.n_rows)
        send_bytes(d, LHI_TAG_SCHEDULE, round, 1, both,
                   lhi_proposal_texts_size(&texts));
}

static lhi_vote hear_vote(duel *d, uint64_t round)
{
    unsigned char bytes[LHI_VOTE_BYTES] = {0};
    lhi_vote v = {0};
    lh_error err = {0};
    CHECK_INT(hear_bytes(d, LHI_TAG_VOTE, round, 0, bytes, sizeof bytes),
              LH_OK);
    CHECK_OK(lhi_vote_read(bytes, sizeof bytes, &v, &err), err);
    return v;
}

/* Rank 1 reports the error and continues. */
static void bad_schedules_from_rank_0(void)
{
    static const struct {
        const char *text, *paths, *why;
    } all[] = {
        {"0F0,0I0,0W0\n1F0,oops\n", "", "the proposed schedule:2"},
        {"0F0,0I0,0W0\n", "", "device"},
        {"0I0,0F0,0W0\n1F0,1I0,1W0\n", "", ""},
        {"", "", "rank 0 could not send"},
        {"0F0,0I0,0W0\n1F0,1I0,1W0\n", "detour",
         "invalid paths of the proposed"},
        {"0F0,0I0,0W0\n1F0,1I0,1W0\n", "2", "invalid paths of the proposed"},
        {"0F0,0I0,0W0\n1F0,1I0,1W0\n", "01010",
         "invalid paths of the proposed"},
        {"0F0,0I0,0W0\n1F0,1I0,1W0\n", "delegated", NULL},
        {"0F0,0I0,0W0\n1F0,1I0,1W0\n", "", NULL},
    };
    enum { N = sizeof all / sizeof *all };
    duel d;
    begin_duel(&d, 1);
    for (uint32_t k = 0; k < N; k++) {
        lhi_command c = {.what = LHI_COMMAND_STEP, .step = k, .proposes = true};
        unsigned char bytes[BYTES] = {0}, done[LHI_COMMAND_REPORT_BYTES];
        c.verdict = k ? LHI_VERDICT_DROP : LHI_VERDICT_NONE;
        tell_command(&d, 4 * k, &c);
        propose(&d, k + 1, k + 1, all[k].text, all[k].paths);
        lhi_vote v = hear_vote(&d, k + 1);
        CHECK_INT(v.step, k + 1);
        CHECK_MSG(v.refuses == (all[k].why != NULL), "%s: %s", all[k].text,
                  v.why);
        CHECK(!all[k].why || v.why[0]);
        CHECK_HAS(v.why, all[k].why ? all[k].why : "");
        send_bytes(&d, LHI_TAG_MESSAGE, 2 * k, 1, bytes, sizeof bytes);
        CHECK_INT(
            hear_bytes(&d, LHI_TAG_MESSAGE, 2 * k, 2, bytes, sizeof bytes),
            LH_OK);
        CHECK_INT(hear_bytes(&d, LHI_TAG_DONE, 4 * k, 0, done, sizeof done),
                  LH_OK);
    }
    tell_command(
        &d, 4 * N,
        &(lhi_command){.what = LHI_COMMAND_END, .verdict = LHI_VERDICT_DROP});
    unsigned char rest[LHI_RECORD_COUNTS_BYTES + 2 * LHI_PASS_RECORD_BYTES];
    hear_bytes(&d, LHI_TAG_RECORD, 4 * N + 1, 0, rest, LHI_RECORD_COUNTS_BYTES);
    hear_bytes(&d, LHI_TAG_RECORD, 4 * N + 2, 0, rest,
               2 * LHI_PASS_RECORD_BYTES);
    end_duel(&d);
    CHECK_OK(d.status, d.err);
}

/* Commands that rank 0 must not send at that time. */
static void commands_out_of_order(void)
{
    static const struct {
        lhi_command first, second;
        const char *text, *why;
    } all[] = {
        {{.verdict = LHI_VERDICT_GO}, {0}, NULL, "sent a verdict"},
        {{.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         {.proposes = true},
         "",
         "sent no verdict"},
        {{.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         {.verdict = LHI_VERDICT_GO},
         "",
         "that this rank has refused"},
        {{.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         {.what = LHI_COMMAND_END, .verdict = LHI_VERDICT_GO},
         "",
         "sent a verdict"},
        {{.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         {.what = LHI_COMMAND_SCHEDULE, .proposes = true},
         "",
         "sent a schedule"},
        {{.what = LHI_COMMAND_END, .proposes = true},
         {0},
         NULL,
         "sent a schedule"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        duel d;
        unsigned char done[LHI_COMMAND_REPORT_BYTES];
        begin_duel(&d, 1);
        tell_command(&d, 0, &all[i].first);
        if (all[i].text) {
            propose(&d, 1, 0, all[i].text, "");
            hear_vote(&d, 1);
            CHECK_INT(hear_bytes(&d, LHI_TAG_DONE, 0, 0, done, sizeof done),
                      LH_OK);
            tell_command(&d, 4, &all[i].second);
        }
        unsigned char never[4];
        CHECK_INT(hear_bytes(&d, LHI_TAG_PING, 0, 0, never, 4), LH_EIO);
        end_duel(&d);
        CHECK_INT(d.status, LH_EIO);
        CHECK_HAS(d.err.text, all[i].why);
    }
    /* A proposal for another step, and no proposal. */
    for (int i = 0; i < 2; i++) {
        duel d;
        unsigned char head[LHI_PROPOSAL_BYTES];
        begin_duel(&d, 1);
        tell_command(&d, 0, &all[1].first);
        lhi_proposal_write(&(lhi_proposal){.step = 5}, head);
        head[0] = i ? 'X' : 'L';
        send_bytes(&d, LHI_TAG_SCHEDULE, 1, 0, head, sizeof head);
        unsigned char never[4];
        CHECK_INT(hear_bytes(&d, LHI_TAG_PING, 0, 0, never, 4), LH_EIO);
        end_duel(&d);
        CHECK_INT(d.status, LH_EIO);
        CHECK_HAS(d.err.text, i ? "bytes that are not a proposal"
                                : "a schedule for step 5, not 0");
    }
}

int main(void)
{
    RUN_VIRTUAL(one_rank_rejects_a_schedule);
    RUN_VIRTUAL(rank_1_fails_during_a_vote);
    RUN_VIRTUAL(bad_schedules_from_rank_0);
    RUN_VIRTUAL(commands_out_of_order);
    return test_summary();
}
