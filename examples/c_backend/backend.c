/* A codec backend in C, judged by `gmc pipe` and by the vectors of `gmc vectors`.
 *
 *     cc -O2 -ffp-contract=off -o backend backend.c -lm
 *     gmc pipe ./backend
 *
 * It reads requests from standard input and writes answers to standard output, numbers as the hexadecimal digits of
 * their bits; `gmc pipe --help` has the format.  Build it without contraction: every fma below is written out.
 * Its square root is the correctly rounded one, so it claims the op models that use that.
 */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define M_ESCAPE 0x80
#define MOST_WORDS 64
#define WORD 80

static float f32(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
static uint32_t bits32(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }
static double f64(uint64_t bits) { double x; memcpy(&x, &bits, sizeof x); return x; }
static uint64_t bits64(double x) { uint64_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

static void fail(const char *what)
{
    fprintf(stderr, "backend: %s\n", what);
    exit(1);
}

static float read_f32(void)
{
    uint32_t bits;
    if (scanf("%" SCNx32, &bits) != 1) fail("expected a binary32");
    return f32(bits);
}

/* --- grids: the levels 2**(low + i*step), i = 0 ... levels - 1 ------------------------------------------------- */

struct grid { double low, step; int levels; };

static struct grid read_grid(void)
{
    struct grid grid;
    uint64_t low, step;
    if (scanf("%" SCNx64 " %" SCNx64 " %d", &low, &step, &grid.levels) != 3) fail("expected a grid");
    grid.low = f64(low);
    grid.step = f64(step);
    return grid;
}

/* The exponent is exact in a double; the power has eleven bits more than a float, and then rounds once. */
static float level(struct grid grid, int index) { return (float)exp2l((long double)grid.low + index * (long double)grid.step); }

static int nearest(struct grid grid, float magnitude)
{
    long double position = (log2l(magnitude) - grid.low) / grid.step + 0.5L; /* ties go up */
    if (position < 0) return 0;
    return position >= grid.levels ? grid.levels - 1 : (int)position;
}

static void encode(void)
{
    struct grid gm = read_grid(), gv = read_grid();
    long n;
    if (scanf("%ld", &n) != 1) fail("expected a count");
    while (n-- > 0) {
        float m = read_f32(), v = read_f32();
        int mc = m == 0 ? 0 : (nearest(gm, fabsf(m)) + 1) | (m < 0 ? 0x80 : 0);
        printf("%02x %02x\n", mc, v == 0 ? 0 : nearest(gv, v) + 1);
    }
}

static void decode(void)
{
    struct grid gm = read_grid(), gv = read_grid();
    long n;
    if (scanf("%ld", &n) != 1) fail("expected a count");
    while (n-- > 0) {
        unsigned mc, vc;
        if (scanf("%x %x", &mc, &vc) != 2) fail("expected two codes");
        float m = (mc & 0x7f) == 0 ? 0.0f : level(gm, (int)(mc & 0x7f) - 1);
        float v = vc == 0 ? 0.0f : level(gv, (int)vc - 1);
        printf("%08" PRIx32 " %08" PRIx32 "\n", bits32(mc & 0x80 && mc != M_ESCAPE ? -m : m), bits32(v));
    }
}

/* --- ratio8: the second moment on a grid, the first as a multiple of a step times its root ---------------------- */

static float root(struct grid grid, int index) { return (float)exp2l(((long double)grid.low + index * (long double)grid.step) / 2); }

static void encode_ratio(void)
{
    struct grid grid = read_grid();
    float step = read_f32();
    long n;
    if (scanf("%ld", &n) != 1) fail("expected a count");
    while (n-- > 0) {
        float m = read_f32(), v = read_f32();
        int vc = v == 0 ? 0 : nearest(grid, v) + 1;
        double multiple = vc == 0 ? 0 : rint(m / ((double)step * root(grid, vc - 1))); /* ties to even */
        if (multiple > 127) multiple = 127;
        if (multiple < -127) multiple = -127;
        printf("%02x %02x\n", (unsigned)(int)multiple & 0xff, vc);
    }
}

static void decode_ratio(void)
{
    struct grid grid = read_grid();
    float step = read_f32();
    long n;
    if (scanf("%ld", &n) != 1) fail("expected a count");
    while (n-- > 0) {
        unsigned mc, vc;
        if (scanf("%x %x", &mc, &vc) != 2) fail("expected two codes");
        float multiple = (float)(mc & 0x80 ? (int)mc - 256 : (int)mc) * step; /* exact */
        float m = multiple * (vc == 0 ? 0.0f : root(grid, (int)vc - 1));
        printf("%08" PRIx32 " %08" PRIx32 "\n", bits32(m), bits32(vc == 0 ? 0.0f : level(grid, (int)vc - 1)));
    }
}

/* --- words NAME=VALUE, and after them how many elements follow ------------------------------------------------- */

struct words { char name[MOST_WORDS][WORD], value[MOST_WORDS][WORD]; int count; long elements; };

static void read_words(struct words *words)
{
    char word[WORD];
    for (words->count = 0; scanf("%79s", word) == 1; words->count++) {
        char *equals = strchr(word, '=');
        if (equals == NULL) {
            words->elements = atol(word);
            return;
        }
        if (words->count == MOST_WORDS) fail("too many words");
        *equals = 0;
        snprintf(words->name[words->count], WORD, "%s", word);
        snprintf(words->value[words->count], WORD, "%s", equals + 1);
    }
    fail("expected a count");
}

static const char *value_of(const struct words *words, const char *name)
{
    for (int i = 0; i < words->count; i++)
        if (strcmp(words->name[i], name) == 0) return words->value[i];
    fail(name);
    return NULL;
}

static int is(const struct words *words, const char *name, const char *value) { return strcmp(value_of(words, name), value) == 0; }
static double d(const struct words *words, const char *name) { return f64(strtoull(value_of(words, name), NULL, 16)); }
static float f(const struct words *words, const char *name) { return f32((uint32_t)strtoul(value_of(words, name), NULL, 16)); }

/* --- the guard: the closed form, in binary64 ------------------------------------------------------------------- */

static int in_domain(double m, double v)
{
    return fabs(m) <= 0x1p60 && v >= 0 && v <= 0x1p100 && !signbit(v) && !(m == 0 && signbit(m));
}

static void guard(void)
{
    struct words k;
    read_words(&k);
    double w = d(&k, "w"), rest = d(&k, "complement"), radicand = d(&k, "radicand"), eps = d(&k, "eps");
    double step = d(&k, "step"), bound = d(&k, "gradient_bound"), gap_cap = d(&k, "gap_cap");
    double radicand_cap = d(&k, "radicand_cap"), slack_moment = d(&k, "slack_moment");
    double slack_reciprocal = d(&k, "slack_reciprocal"), slack_gradient = d(&k, "slack_gradient");
    double slack_floor = d(&k, "slack_floor"), threshold = d(&k, "threshold");
    while (k.elements-- > 0) {
        double m = read_f32(), v = read_f32(), m_hat = read_f32(), v_hat = read_f32();
        double root = sqrt(radicand * v), root_hat = sqrt(radicand * v_hat);
        double h = 1 / (root + eps), h_hat = 1 / (root_hat + eps), low = fmin(h, h_hat);
        double gap = radicand * fabs(v_hat - v);
        double root_gap = gap / fmax(root + root_hat, 0x1p-1000);
        double first = rest * fabs(m_hat - m) * h_hat;
        double second = rest * fabs(m) * root_gap * h * h_hat;
        double third = fmin(bound * root_gap * h * h_hat, fmin(root_gap * low * gap_cap, gap * h * h_hat * radicand_cap));
        double rounding = (slack_moment * fabs(m) + slack_reciprocal) * h +
                          (slack_moment * fabs(m_hat) + slack_reciprocal) * h_hat + 2 * slack_gradient;
        double total = step * (first + second + w * third + rounding) + 2 * slack_floor;
        /* 1e-12 is far more than these few dozen roundings can come to. */
        puts(total * (1 + 1e-12) <= threshold && in_domain(m, v) && in_domain(m_hat, v_hat) ? "1" : "0");
    }
}

/* --- the first update ------------------------------------------------------------------------------------------- */

static float first_moment(const struct words *k, float m, float g)
{
    float w = f(k, "w"), beta1 = f(k, "beta1");
    int fused = is(k, "interpolation", "FMA");
    if (is(k, "interpolation", "FMA_TWICE")) return fmaf(beta1, m, fmaf(-beta1, g, g));
    if (is(k, "interpolate_from_end", "0")) return fused ? fmaf(w, g - m, m) : m + w * (g - m);
    if (is(k, "from_end", "SCALED"))
        return fused ? fmaf(f(k, "w_minus_one"), g - m, g) : f(k, "w_minus_one") * (g - m) + g;
    return fused ? fmaf(-(g - m), f(k, "one_minus_w"), g) : g - (g - m) * f(k, "one_minus_w");
}

static float second_moment(const struct words *k, float v, float g)
{
    float c = f(k, "c"), beta2 = f(k, "beta2");
    if (is(k, "second_moment", "SEPARATE")) return v * beta2 + c * g * g;
    if (is(k, "second_moment", "FMA_PRODUCT")) return fmaf(c * g, g, v * beta2);
    if (is(k, "second_moment", "FMA_DECAY")) return fmaf(v, beta2, c * g * g);
    if (is(k, "second_moment", "FMA_SQUARE")) return fmaf(c, g * g, v * beta2);
    if (is(k, "second_moment", "FMA_TWICE")) return fmaf(beta2, v, fmaf(-beta2, g * g, g * g));
    fail("an unknown second moment");
    return 0;
}

static void first_update(void)
{
    struct words k;
    read_words(&k);
    float root = f(&k, "root"), eps = f(&k, "eps"), step = f(&k, "step");
    int multiplies = is(&k, "correction", "MULTIPLY");
    if (!is(&k, "square_root", "CORRECT")) fail("only the correctly rounded square root is here");
    while (k.elements-- > 0) {
        float m = read_f32(), v = read_f32(), g = read_f32();
        float new_m = first_moment(&k, m, g), r = sqrtf(second_moment(&k, v, g));
        float denominator = (multiplies ? r * root : r / root) + eps;
        if (is(&k, "update", "MULTIPLY_THEN_DIVIDE")) printf("%08" PRIx32 "\n", bits32(step * new_m / denominator));
        else if (is(&k, "update", "QUOTIENT")) printf("%08" PRIx32 "\n", bits32(new_m / denominator));
        else printf("%016" PRIx64 "\n", bits64((double)step * (double)(new_m / denominator)));
    }
}

int main(void)
{
    char what[16];
    int version;
    while (scanf("%15s", what) == 1) {
        if (strcmp(what, "hello") == 0) {
            if (scanf("%d", &version) != 1 || version != 1) fail("only version 1 is spoken here");
            puts("operations encode decode encode_ratio decode_ratio guard first_update");
            puts("op-models torch-2.13-cpu-avx2/fused torch-2.13-cpu-default/fused torch-2.13-cpu-avx2/compiled "
                 "torch-2.14-cuda/single torch-2.14-cuda/foreach torch-2.14-cuda/capturable "
                 "torch-2.14-cuda-sm75-sm90/fused torch-2.14-cuda-sm100-sm120/fused\n");
        }
        else if (strcmp(what, "encode") == 0) encode();
        else if (strcmp(what, "decode") == 0) decode();
        else if (strcmp(what, "encode_ratio") == 0) encode_ratio();
        else if (strcmp(what, "decode_ratio") == 0) decode_ratio();
        else if (strcmp(what, "guard") == 0) guard();
        else if (strcmp(what, "first_update") == 0) first_update();
        else fail(what);
        fflush(stdout);
    }
    return 0;
}
