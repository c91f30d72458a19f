/* SPDX-License-Identifier: Apache-2.0 */
/* Memory limits from files as the system has them; also that the cpu device's
 * predicted memory is its actual one. */
#define _GNU_SOURCE /* mkdtemp, RLIMIT_AS */
#include "moe_models.h"
#include "small_llama.h"
#include "tiny_model.h"

#include "base/available_memory.h"
#include "runtime/device/blas.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char root[64];

static void make_folders(const char *inner)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, inner);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0777);
        *p = '/';
    }
}

static void put_file(const char *inner, const char *text)
{
    char path[512];
    make_folders(inner);
    snprintf(path, sizeof path, "%s/%s", root, inner);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0);
    if (file)
        fclose(file);
}

static void begin_root(void)
{
    snprintf(root, sizeof root, "/tmp/lh-room-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
}

static void end_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK_INT(system(command), 0);
}

static void nothing_known_limits_nothing(void)
{
    begin_root();
    CHECK(lhi_find_physical_memory(root).bytes == UINT64_MAX);
    end_root();
}

static void available_memory_and_swap(void)
{
    begin_root();
    put_file("proc/meminfo", "MemTotal:       4000 kB\nMemFree: 10 kB\n"
                             "MemAvailable:   3000 kB\nSwapFree:  500 kB\n");
    CHECK_INT(lhi_find_physical_memory(root).bytes, 3500 * 1024);
    CHECK_HAS(lhi_find_physical_memory(root).limit, "available memory");
    end_root();
}

/* The tightest limit among the group and its ancestors; page cache counts as
 * free. */
static void groups_of_version_2(void)
{
    begin_root();
    put_file("proc/meminfo", "MemAvailable:   3000 kB\n");
    put_file("proc/self/cgroup", "0::/jobs/one\n");
    put_file("sys/fs/cgroup/jobs/one/memory.max", "max\n");
    put_file("sys/fs/cgroup/jobs/one/memory.current", "5\n");
    CHECK_INT(lhi_find_physical_memory(root).bytes, 3000 * 1024);
    put_file("sys/fs/cgroup/jobs/memory.max", "1000000\n");
    put_file("sys/fs/cgroup/jobs/memory.current", "900000\n");
    CHECK_INT(lhi_find_physical_memory(root).bytes, 100000);
    CHECK_HAS(lhi_find_physical_memory(root).limit, "memory.max");
    put_file("sys/fs/cgroup/jobs/memory.stat",
             "anon 1\nfile 70000\ninactive_file 30000\nactive_file 20000\n");
    CHECK_INT(lhi_find_physical_memory(root).bytes, 150000);
    put_file("sys/fs/cgroup/jobs/one/memory.max", "1000\n");
    put_file("sys/fs/cgroup/jobs/one/memory.current", "4000\n");
    CHECK_INT(lhi_find_physical_memory(root).bytes, 0);
    end_root();
}

static void groups_of_version_1(void)
{
    begin_root();
    put_file("proc/self/cgroup", "12:pids:/x\n4:cpu,memory:/only/the/host\n");
    put_file("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
    put_file("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
    CHECK_INT(lhi_find_physical_memory(root).bytes, 1500000);
    put_file("sys/fs/cgroup/memory/memory.limit_in_bytes",
             "9223372036854771712\n");
    CHECK(lhi_find_physical_memory(root).bytes == UINT64_MAX);
    end_root();
}

static void limits_of_the_process(void)
{
    struct rlimit before, now;
    CHECK_INT(getrlimit(RLIMIT_DATA, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)1 << 46; /* far above, for sanitizers, too */
    CHECK_INT(setrlimit(RLIMIT_DATA, &now), 0);
    lhi_available_memory room = lhi_find_mappable_memory();
    CHECK_INT(setrlimit(RLIMIT_DATA, &before), 0);
    CHECK(room.bytes <= (uint64_t)1 << 46);
}

/* --- the cpu device ------------------------------------------------------- */

/* The passes of small_step(). */
static uint32_t passes_of(const small *s, small_order order, lh_pass *out)
{
    uint32_t n = 0, m_all = s->n_microbatches;
    for (uint32_t m = 0; m < m_all; m++)
        for (uint32_t c = 0; c < s->n_chunks; c++)
            out[n++] = (lh_pass){.chunk = c, .microbatch = m, .kind = LH_F};
    for (uint32_t m = 0; m < m_all; m++)
        for (uint32_t c = s->n_chunks; c-- > 0;)
            out[n++] = (lh_pass){.chunk = c,
                                 .microbatch = m,
                                 .kind = order == SMALL_JOINT ? LH_B : LH_D};
    for (uint32_t c = 0; c < s->n_chunks && order != SMALL_JOINT; c++)
        for (uint32_t m = 0; m < m_all; m++)
            out[n++] = (lh_pass){.chunk = c, .microbatch = m, .kind = LH_W};
    return n;
}

static double holds_what_was_counted(const lh_model *model, uint32_t n_chunks,
                                     uint32_t sequence, uint32_t n_microbatches,
                                     const uint32_t *again)
{
    lh_error err;
    small s = small_sizes();
    s.model = *model;
    s.again = again;
    s.n_chunks = n_chunks;
    s.n_microbatches = n_microbatches;
    s.sequence = sequence;
    s.dropout = model->positions ? 0.1 : 0;
    if (!small_open(&s))
        return 0;
    small_order order = again ? SMALL_JOINT : SMALL_SPLIT;
    uint32_t mine[16];
    lh_pass passes[256];
    for (uint32_t c = 0; c < n_chunks; c++)
        mine[c] = c;
    lhi_cpu_options o = {.model = &s.model,
                         .n_chunks = n_chunks,
                         .first_layers = s.firsts,
                         .recompute = again,
                         .n_mine = n_chunks,
                         .mine = mine,
                         .microbatch = s.microbatch,
                         .sequence = sequence,
                         .n_microbatches = n_microbatches,
                         .n_replicas = 1,
                         .dropout = s.dropout};
    small_step(&s, 0, LHI_STEP_TRAIN, order);
    double counted[LH_N_MEMORY_KINDS] = {0};
    int64_t held[LH_N_MEMORY_KINDS] = {0};
    CHECK_OK(lhi_cpu_estimate_memory(&o, passes, passes_of(&s, order, passes),
                                     NULL, 0, counted, &err),
             err);
    s.devices[0]->ops->add_memory(s.devices[0], held);
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        CHECK_MSG(fabs((double)held[i] - counted[i]) <=
                      0.01 * counted[i] + 8192,
                  "%s: %.0f bytes were counted, %.0f are held",
                  lh_memory_kind_name((lh_memory_kind)i), counted[i],
                  (double)held[i]);
    double parameters = 0, values = 0;
    for (uint32_t c = 0; c < n_chunks; c++) {
        const lhi_device_ops *ops = s.devices[0]->ops;
        parameters += lhi_cpu_count_parameters(&o, c);
        for (uint32_t i = 0; i < ops->n_tensors(s.devices[0], c); i++)
            values += (double)ops->tensor(s.devices[0], c, i)->n;
    }
    CHECK_NEAR(parameters, values, 0);
    small_close(&s);
    return (double)held[LH_MEMORY_ACTIVATIONS] +
           (double)held[LH_MEMORY_SCRATCH];
}

static void devices_hold_what_was_counted(void)
{
    lh_model m = small_model();
    holds_what_was_counted(&m, 1, 21, 3, NULL);
    holds_what_was_counted(&m, 3, 64, 7, NULL);
    m.hidden = 64, m.ffn = 200, m.heads = 6, m.head_dim = 12;
    holds_what_was_counted(&m, 2, 100, 2, NULL);
    m.tied_embeddings = true, m.layers = 1;
    holds_what_was_counted(&m, 4, 40, 9, NULL);
    m = tiny_gpt2(5);
    holds_what_was_counted(&m, 3, 30, 7, NULL);
    uint32_t again[5] = {LH_PART_ALL, 0x51, LH_PART_ALL, 0, LH_PART_ALL};
    holds_what_was_counted(&m, 2, 30, 7, again);
    m = tiny_mixtral(5);
    holds_what_was_counted(&m, 3, 30, 7, NULL);
    holds_what_was_counted(&m, 2, 30, 7, again);
    m = qwen2_moe_of(tiny_model(5));
    holds_what_was_counted(&m, 2, 30, 7, NULL);
    holds_what_was_counted(&m, 3, 30, 7, again);
    m = glm4_moe_of(tiny_deepseek(5));
    holds_what_was_counted(&m, 2, 30, 7, again);
    const lh_model more[] = {tiny_qwen3(5), tiny_falcon(5), tiny_deepseek(5)};
    again[1] = 1u << LH_PART_LATENT | 1u << LH_PART_MLP_NORM;
    again[3] = 1u << LH_PART_QKV;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        holds_what_was_counted(&more[i], 3, 30, 7, NULL);
        holds_what_was_counted(&more[i], 2, 30, 7, again);
    }
}

/* Recomputation needs the memory of one layer, for any number of microbatches
 * and layers: layers store only their inputs. */
static void devices_hold_less_that_is_made_again(void)
{
    uint32_t all[12], some[12];
    lh_model m = small_model();
    m.layers = 12;
    for (uint32_t i = 0; i < 12; i++) {
        all[i] = LH_PART_ALL;
        some[i] = i % 3 ? 0x51u << i % 2 : 0;
    }
    double whole = holds_what_was_counted(&m, 2, 64, 8, NULL);
    double part = holds_what_was_counted(&m, 2, 64, 8, some);
    double least = holds_what_was_counted(&m, 2, 64, 8, all);
    CHECK_MSG(least < 0.5 * whole && least < part && part < whole,
              "%.0f, %.0f, %.0f bytes", whole, part, least);
}

/* After lhi_blas_load(n), products on n threads map no more memory, so nothing
 * can fail later. Here: a second load finds the buffers of the first. */
static void buffers_are_taken_beforehand(void)
{
    lhi_sgemm sgemm = NULL;
    lh_error err;
    lh_status status = lhi_blas_load(3, &sgemm, &err);
    if (status == LH_EUNSUPPORTED) {
        fprintf(stderr, "SKIPPED: %s\n", err.text);
        return;
    }
    CHECK_OK(status, err);
    float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, c[4];
    sgemm(LHI_BLAS_ROWS, LHI_BLAS_PLAIN, LHI_BLAS_PLAIN, 2, 2, 2, 1, a, 2, b, 2,
          0, c, 2);
    CHECK_NEAR(c[0], 19, 0);
    CHECK_NEAR(c[3], 50, 0);
    CHECK_INT(lhi_blas_load(4096, &sgemm, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "--transport local");
}

int main(void)
{
    RUN(nothing_known_limits_nothing);
    RUN(available_memory_and_swap);
    RUN(groups_of_version_2);
    RUN(groups_of_version_1);
    RUN(limits_of_the_process);
    RUN(buffers_are_taken_beforehand);
    RUN(devices_hold_what_was_counted);
    RUN(devices_hold_less_that_is_made_again);
    return test_summary();
}
