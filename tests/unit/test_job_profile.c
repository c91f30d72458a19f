/* SPDX-License-Identifier: Apache-2.0 */
/* Profile files: rejected input, and entry lookup. */
#include "format/job/profile_lookup.h"
#include "test_job.h"

static void refuse_profile(const char *text, const char *says)
{
    lh_error err = {0};
    lh_profile *p = NULL;
    lh_status status = lh_profile_parse(text, strlen(text), "p.yaml", &p, &err);
    CHECK_MSG(status == LH_EINPUT, "accepted, where it should say '%s':\n%s",
              says, text);
    if (status != LH_OK)
        CHECK_HAS(err.text, says);
    lh_profile_free(p);
}

static void bad_profiles_are_refused(void)
{
#define P "longhaul: profile/1\n"
#define E(entry) P "entries:\n  - {" entry "}\n"
#define TIMES "sequence: 8, F_us: 1, D_us: 1, W_us: 1"
#define L(link) P "links:\n  - {" link "}\n"
    refuse_profile("longhaul: job/1\n", "must be profile/1");
    refuse_profile(P, "requires 'entries' or 'links'");
    refuse_profile(P "entries: 3\n", "entries: must be a list");
    refuse_profile(E("kind: layr, " TIMES), "must be layer, moe_layer");
    refuse_profile(E("sequence: 8"), "'kind' is missing");
    refuse_profile(E("kind: layer"), "'sequence' is missing");
    refuse_profile(E("kind: layer, sequence: 8"), "'F_us' is missing");
    refuse_profile(E("kind: layer, sequence: 8, F_us: 1, D_us: 1"),
                   "'W_us' is missing");
    refuse_profile(E("kind: layer, sequence: 8, F_us: -1"), "-1 is out");
    refuse_profile(E("kind: layer, sequence: 8, F_us: 3.6e9001"), "too large");
    refuse_profile(E("kind: layer, sequence: 8, F_us: 3.7e9"),
                   "at most an hour");
    refuse_profile(E("kind: layer, F_ms: 1"), "did you mean 'F_us'");
    refuse_profile(E("kind: layer, tensor: 0, " TIMES), "tensor: 0 is out");
    refuse_profile(E("kind: layer, activation_bytes: -1, " TIMES), "-1 is out");
    refuse_profile(E("kind: layer, chunk: 0, " TIMES),
                   "only in entries of kind chunk");
    refuse_profile(E("kind: head, layers: 3, " TIMES),
                   "only in entries of kind chunk");
    refuse_profile(E("kind: chunk, " TIMES), "'of' is missing");
    refuse_profile(E("kind: chunk, of: 2, " TIMES), "'chunk' is missing");
    refuse_profile(E("kind: chunk, of: 2, chunk: 2, " TIMES), "2 is out");
    refuse_profile(E("kind: chunk, of: 2, chunk: 1, " TIMES),
                   "only 1 of the 2 chunks");
    refuse_profile(E("kind: layer, " TIMES "}\n  - {kind: layer, " TIMES),
                   "entries[1]: has the same conditions as entry 0");
    refuse_profile(E("kind: layer, communication: 1, " TIMES), "true or false");
    refuse_profile(E("kind: layer, sequence_parallel: false, " TIMES),
                   "only in entries with tensor above 1");
    refuse_profile(E("kind: layer, tensor: 2, sequence_parallel: true, " TIMES),
                   "true is the same as no key");
    refuse_profile(L("path: moon"), "must be node, fabric or wan");
    refuse_profile(L("path: wan, alpha_us: 1, beta_ns_per_byte: 1"),
                   "'from' is missing");
    refuse_profile(L("path: node, from: a, alpha_us: 1, beta_ns_per_byte: 1"),
                   "use 'site'");
    refuse_profile(L("path: wan, site: a, alpha_us: 1, beta_ns_per_byte: 1"),
                   "'from' and 'to'");
    refuse_profile(L("path: node, alpha_us: 1"), "'beta_ns_per_byte' is");
    refuse_profile(L("path: node, alpha_us: 1, beta_ns_per_byte: inf"), "inf");
    refuse_profile(L("path: node, alpha_us: 1, beta_ns_per_byte: 1}\n"
                     "  - {path: node, alpha_us: 2, beta_ns_per_byte: 1"),
                   "links[1]: duplicates the path of entry 0");
    refuse(JOB "profile: {longhaul: profile/1, model: llama3-70b, links: []}\n",
           "is for model llama3-70b, but the job's model is llama3-8b");
    refuse(JOB "profile: {longhaul: profile/1, links: [{path: node, site: c, "
               "alpha_us: 1, beta_ns_per_byte: 1}]}\n",
           "names datacenter 'c'");
    refuse(
        JOB "profile: {longhaul: profile/1, entries: [{kind: layer, model: "
            "llama3-70b, sequence: 8, F_us: 1, D_us: 1, W_us: 1}, {kind: "
            "layer, model: mine, sequence: 8, F_us: 1, D_us: 1, W_us: 1}]}\n",
        "has entries for llama3-70b, mine, but the job's model is llama3-8b");
    refuse(JOB "profile: {links: []}\n", "write 'longhaul: profile/1'");
}

static void entries_are_found_by_their_conditions(void)
{
    static const char text[] =
        P "gpu: h200\n"
          "entries:\n"
          "  - {kind: layer, tensor: 2, sequence: 8, F_us: 1, D_us: 2, "
          "W_us: 3}\n"
          "  - {kind: layer, tensor: 2, sequence: 8, F_us: 4, D_us: 5, "
          "W_us: 6, gpu: b200, activation_bytes: 0}\n"
          "  - {kind: chunk, chunk: 1, of: 2, sequence: 8, F_us: 7, D_us: 8, "
          "W_us: 9}\n"
          "  - {kind: chunk, chunk: 0, of: 2, sequence: 8, F_us: 7.5, "
          "D_us: 8, W_us: 9}\n"
          "  - {kind: layer, tensor: 2, sequence: 16, F_us: 10, D_us: 8, "
          "W_us: 9, model: llama3.1-405b}\n"
          "  - {kind: layer, tensor: 2, sequence: 16, F_us: 11, D_us: 8, "
          "W_us: 9, model: mine}\n"
          "  - {kind: layer, tensor: 2, sequence: 16, F_us: 12, D_us: 8, "
          "W_us: 9, model: mine, sequence_parallel: false}\n";
    lh_error err = {0};
    lh_profile *p = NULL;
    CHECK_OK(lh_profile_parse(text, sizeof text - 1, "p", &p, &err), err);
    if (!p)
        return;
    lh_profile_entry like = {.kind = LH_PROFILE_LAYER,
                             .gpu = "h200",
                             .tensor = 2,
                             .context = 1,
                             .expert = 1,
                             .micro_batch = 1,
                             .sequence = 8};
    const lh_profile_entry *e = lhi_profile_find(p, &like);
    CHECK(e && e->f_ns == 1000 && e->activation_bytes == LH_NOT_MEASURED);
    like.gpu = "b200";
    e = lhi_profile_find(p, &like);
    CHECK(e && e->f_ns == 4000 && e->activation_bytes == 0);
    like.gpu = "a100-80g";
    CHECK(!lhi_profile_find(p, &like));
    like.gpu = NULL;
    CHECK(lhi_profile_find(p, &like) != NULL);
    like.model = "mine"; /* no entry names another model */
    CHECK(lhi_profile_find(p, &like) != NULL);
    like.sequence = 9;
    CHECK(!lhi_profile_find(p, &like));
    like.sequence = 16;
    e = lhi_profile_find(p, &like);
    CHECK(e && e->f_ns == 11000);
    like.no_sequence_parallel = true;
    e = lhi_profile_find(p, &like);
    CHECK(e && e->f_ns == 12000);
    like.no_sequence_parallel = false;
    like.model = "llama3-405b";
    e = lhi_profile_find(p, &like);
    CHECK(e && e->f_ns == 10000);
    like.model = "llama3-70b";
    CHECK(!lhi_profile_find(p, &like));
    like = (lh_profile_entry){.kind = LH_PROFILE_CHUNK,
                              .gpu = "h200",
                              .tensor = 1,
                              .context = 1,
                              .expert = 1,
                              .micro_batch = 1,
                              .sequence = 8,
                              .chunk = 0,
                              .n_chunks = 2};
    e = lhi_profile_find(p, &like);
    CHECK(e && e->f_ns == 7500);
    profile_round_trip(p, "profile");
    lh_profile_free(p);
}

int main(void)
{
    RUN(bad_profiles_are_refused);
    RUN(entries_are_found_by_their_conditions);
    return test_summary();
}
