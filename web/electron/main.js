/** The desktop app's main process. */

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import * as electron from 'electron';
import { Desktop } from './desktop.js';

const root = electron.app.getAppPath();

new Desktop(electron, {
  page: join(root, 'dist'),
  preload: join(root, 'web', 'electron', 'preload.cjs'),
  // A packaged app has its model beside its code, a checkout in its own folder.
  models: electron.app.isPackaged ? join(process.resourcesPath, 'models') : join(root, 'models'),
  icon: join(root, 'web', 'electron', 'resources', 'icon.png'),
  argv: process.argv,
  platform: process.platform,
  env: process.env,
  spawn,
}).start();
