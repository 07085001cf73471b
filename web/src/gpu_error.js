/** The error of the bridge. */

/** @typedef {'InvalidArgument' | 'NotSupported' | 'BadModelFile' | 'DeviceError' | 'OutOfMemory' | 'DeviceLost'} ErrorKind */

/** An error whose `name` is that of the Python class it becomes. */
export class GpuError extends Error {
  /**
   * @param {ErrorKind} kind
   * @param {string} message
   */
  constructor(kind, message) {
    super(message);
    this.name = kind;
  }
}
