//! An engine in Rust: bwprof.h's declarations, a safe wrapper, and a report that saves itself.
//!   rustc example.rs $(python -m bwprof.config --rustc)
use std::ffi::{c_char, c_double, c_int, c_void, CStr, CString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;

#[repr(C)]
struct RawProfiler {
    _private: [u8; 0],
}

/// bwprof_report.
#[repr(C)]
struct RawReport {
    operation: [c_char; 64],
    precision: [c_char; 16],
    time_ms: c_double,
    bandwidth_gb_s: c_double,
    bytes_read: u64,
    bytes_written: u64,
}

extern "C" {
    fn bwprof_last_error() -> *const c_char;
    fn bwprof_abi_version() -> c_int;
    fn bwprof_profiler_create(backend: *const c_char, device: c_int, out: *mut *mut RawProfiler) -> c_int;
    fn bwprof_profiler_destroy(profiler: *mut RawProfiler) -> c_int;
    fn bwprof_profiler_start(profiler: *mut RawProfiler, name: *const c_char, stream: *mut c_void) -> c_int;
    fn bwprof_profiler_stop(profiler: *mut RawProfiler, name: *const c_char, stream: *mut c_void) -> c_int;
    fn bwprof_profiler_set_bytes(profiler: *mut RawProfiler, name: *const c_char, read: u64, written: u64) -> c_int;
    fn bwprof_profiler_elapsed_ms(profiler: *mut RawProfiler, name: *const c_char, ms: *mut c_double) -> c_int;
    fn bwprof_profiler_bandwidth_gb_s(profiler: *mut RawProfiler, name: *const c_char, gb_s: *mut c_double) -> c_int;
    fn bwprof_profile_gemm_bandwidth(m: c_int, n: c_int, k: c_int, use_fp16: c_int, out: *mut RawReport) -> c_int;
    fn bwprof_report_save_to_proof_bundle(report: *const RawReport, run_id: *const c_char) -> c_int;
    fn bwprof_gemm_cost(m: i64, n: i64, k: i64, precision: *const c_char, read: *mut u64, written: *mut u64, flops: *mut u64) -> c_int;
}

const ABI_VERSION: c_int = 1;

#[derive(Debug)]
pub struct Error {
    pub status: i32,
    pub message: String,
}

fn check(status: c_int) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    let message = unsafe { CStr::from_ptr(bwprof_last_error()) }.to_string_lossy().into_owned();
    Err(Error { status, message })
}

/// A text without a 0 in it, as C wants it.
fn text(name: &str) -> Result<CString, Error> {
    CString::new(name).map_err(|_| Error { status: 1, message: format!("{name:?} holds a 0 byte") })
}

/// A handle is a number that any thread may use.
pub struct Profiler(*mut RawProfiler);
unsafe impl Send for Profiler {}
unsafe impl Sync for Profiler {}

/// Ends when it is dropped, in the thread that began it: it is not Send.
pub struct Range<'a> {
    profiler: &'a Profiler,
    name: CString,
    stream: *mut c_void,
}

impl Profiler {
    pub fn new(backend: &str) -> Result<Self, Error> {
        let mut handle = ptr::null_mut();
        check(unsafe { bwprof_profiler_create(text(backend)?.as_ptr(), 0, &mut handle) })?;
        Ok(Profiler(handle))
    }

    /// `stream` is a cudaStream_t, or null.
    pub fn range(&self, name: &str, stream: *mut c_void) -> Result<Range<'_>, Error> {
        let name = text(name)?;
        check(unsafe { bwprof_profiler_start(self.0, name.as_ptr(), stream) })?;
        Ok(Range { profiler: self, name, stream })
    }

    pub fn set_bytes(&self, name: &str, read: u64, written: u64) -> Result<(), Error> {
        check(unsafe { bwprof_profiler_set_bytes(self.0, text(name)?.as_ptr(), read, written) })
    }

    pub fn elapsed_ms(&self, name: &str) -> Result<f64, Error> {
        let mut ms = f64::NAN;
        check(unsafe { bwprof_profiler_elapsed_ms(self.0, text(name)?.as_ptr(), &mut ms) })?;
        Ok(ms)
    }

    pub fn bandwidth_gb_s(&self, name: &str) -> Result<f64, Error> {
        let mut gb_s = f64::NAN;
        check(unsafe { bwprof_profiler_bandwidth_gb_s(self.0, text(name)?.as_ptr(), &mut gb_s) })?;
        Ok(gb_s)
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        unsafe { bwprof_profiler_destroy(self.0) };
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        unsafe { bwprof_profiler_stop(self.profiler.0, self.name.as_ptr(), self.stream) };
    }
}

/// Bytes read, bytes written, FLOPs.
pub fn gemm_cost(m: i64, n: i64, k: i64, precision: &str) -> Result<(u64, u64, u64), Error> {
    let (mut read, mut written, mut flops) = (0, 0, 0);
    check(unsafe { bwprof_gemm_cost(m, n, k, text(precision)?.as_ptr(), &mut read, &mut written, &mut flops) })?;
    Ok((read, written, flops))
}

/// One of bwprof's own kernels, on the first CUDA device or the CPU.
pub fn profile_gemm(m: i32, n: i32, k: i32, fp16: bool) -> Result<BandwidthReport, Error> {
    let mut raw = RawReport::default();
    check(unsafe { bwprof_profile_gemm_bandwidth(m, n, k, fp16 as c_int, &mut raw) })?;
    let text = |array: &[c_char]| unsafe { CStr::from_ptr(array.as_ptr()) }.to_string_lossy().into_owned();
    Ok(BandwidthReport {
        operation: text(&raw.operation),
        precision: text(&raw.precision),
        time_ms: raw.time_ms,
        bandwidth_gb_s: raw.bandwidth_gb_s,
        bytes_read: raw.bytes_read,
        bytes_written: raw.bytes_written,
    })
}

impl Default for RawReport {
    fn default() -> Self {
        RawReport { operation: [0; 64], precision: [0; 16], time_ms: f64::NAN, bandwidth_gb_s: f64::NAN, bytes_read: 0, bytes_written: 0 }
    }
}

pub struct BandwidthReport {
    pub operation: String,
    pub precision: String,
    pub time_ms: f64,
    pub bandwidth_gb_s: f64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

fn quoted(text: &str) -> String {
    let escape = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        letter if (letter as u32) < 0x20 => format!("\\u{:04x}", letter as u32),
        letter => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

impl BandwidthReport {
    pub fn to_json(&self) -> String {
        format!(
            "{{\n  \"operation\": {},\n  \"precision\": {},\n  \"time_ms\": {:?},\n  \"bandwidth_gb_s\": {:?},\n  \"bytes_read\": {},\n  \"bytes_written\": {}\n}}\n",
            quoted(&self.operation), quoted(&self.precision), self.time_ms, self.bandwidth_gb_s, self.bytes_read, self.bytes_written
        )
    }

    /// The same file by the library, which adds to the reports that are there.
    pub fn add_to_proof_bundle(&self, run_id: &str) -> Result<(), Error> {
        let mut raw = RawReport { time_ms: self.time_ms, bandwidth_gb_s: self.bandwidth_gb_s, ..RawReport::default() };
        (raw.bytes_read, raw.bytes_written) = (self.bytes_read, self.bytes_written);
        // Without the 0 at the end of one that is too long, which the library then refuses.
        raw.operation.iter_mut().zip(self.operation.bytes()).for_each(|(to, from)| *to = from as c_char);
        raw.precision.iter_mut().zip(self.precision.bytes()).for_each(|(to, from)| *to = from as c_char);
        check(unsafe { bwprof_report_save_to_proof_bundle(&raw, text(run_id)?.as_ptr()) })
    }

    /// Writes .test-results/bandwidth/<run_id>/bandwidth_report.json, whole or not at all.
    pub fn save_to_proof_bundle(&self, run_id: &str) -> io::Result<PathBuf> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if run_id.is_empty() || run_id.len() > 128 || run_id.starts_with('.') || !run_id.chars().all(plain) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("run_id {run_id:?} is no plain name")));
        }
        let folder = Path::new(".test-results").join("bandwidth").join(run_id);
        fs::create_dir_all(&folder)?;
        let (path, beside) = (folder.join("bandwidth_report.json"), folder.join(".bandwidth_report.json.tmp"));
        fs::write(&beside, self.to_json())?;
        fs::rename(&beside, &path)?;
        Ok(path)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    assert_eq!(unsafe { bwprof_abi_version() }, ABI_VERSION);
    let profiler = Profiler::new("cpu").map_err(|error| error.message)?;
    let (read, written, _) = gemm_cost(1, 896, 896, "fp32").map_err(|error| error.message)?;
    profiler.set_bytes("decode_gemm", read, written).map_err(|error| error.message)?;
    let weights = vec![0.5f32; 896 * 896];
    for _ in 0..10 {
        let _range = profiler.range("decode_gemm", ptr::null_mut()).map_err(|error| error.message)?;
        std::hint::black_box(weights.chunks(896).map(|row| row.iter().sum::<f32>()).collect::<Vec<_>>());
    }
    let report = BandwidthReport {
        operation: "decode_gemm".into(),
        precision: "FP32".into(),
        time_ms: profiler.elapsed_ms("decode_gemm").map_err(|error| error.message)?,
        bandwidth_gb_s: profiler.bandwidth_gb_s("decode_gemm").map_err(|error| error.message)?,
        bytes_read: read,
        bytes_written: written,
    };
    println!("{}", report.save_to_proof_bundle("rust-example")?.display());
    let refused = profiler.elapsed_ms("never").unwrap_err();
    println!("refused {} {}", refused.status, refused.message);
    for _ in 0..2 {
        report.add_to_proof_bundle("rust-and-c").map_err(|error| error.message)?;
    }
    let refused = profile_gemm(0, 896, 896, true).err().ok_or("a gemm of no rows")?;
    println!("refused {} {}", refused.status, refused.message);
    Ok(())
}
